"""The admin pages of governance."""

from governance.admin import redaction, retention, retention_holds, rollback, staleness  # noqa: F401
