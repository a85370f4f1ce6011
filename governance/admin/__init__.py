"""The admin pages of governance."""

from governance.admin import redaction  # noqa: F401
