"""Governance as a Django app."""

from django.apps import AppConfig


class GovernanceConfig(AppConfig):
    """What a person does with what her agents remember: keep, hold, redact, roll back, affirm."""

    name = "governance"
    verbose_name = "Governance"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register events, projectors and effects."""
        from governance import redaction, retention, rollback, staleness

        for part in (retention, redaction, rollback, staleness):
            part.register()
