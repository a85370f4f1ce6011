"""Governance as a Django app."""

from django.apps import AppConfig


class GovernanceConfig(AppConfig):
    """What a person does with what her agents remember: keep, hold, redact, roll back, affirm."""

    name = "governance"
    verbose_name = "Governance"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register events and projectors."""
        from governance import redaction, retention, staleness, taint

        for part in (retention, redaction, taint, staleness):
            part.register()
