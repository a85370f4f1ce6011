"""Governance as a Django app."""

from django.apps import AppConfig


class GovernanceConfig(AppConfig):
    """What a person does with what her agents remember: keep, hold, redact, roll back, affirm."""

    name = "governance"
    verbose_name = "Governance"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register events, projectors and effects, and check that every effect which an event type names is there."""
        from governance import redaction, retention, rollback, staleness
        from memoryhub.core.events.event_types import require_effects

        for part in (retention, redaction, rollback, staleness):
            part.register()
        require_effects()
