"""Decisions as a Django app."""

from django.apps import AppConfig


class DecisionsConfig(AppConfig):
    """What we chose: decisions, how they follow one another, and what is evidence of them."""

    name = "decisions"
    verbose_name = "Decisions"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register events, projectors, entities, what can be found, and what is told of decisions elsewhere."""
        from decisions import agent_guard, contributions, events, projectors, quarantine, search, services  # noqa: F401
