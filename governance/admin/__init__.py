"""The admin pages of governance."""

from governance.admin import redaction, rollback, staleness  # noqa: F401
