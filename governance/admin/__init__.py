"""The admin pages of governance."""

from governance.admin import holds, redaction, retention, rollback, staleness
