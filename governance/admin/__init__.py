"""The admin pages of governance."""

from governance.admin import redaction, staleness  # noqa: F401
