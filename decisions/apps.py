from django.apps import AppConfig


class DecisionsConfig(AppConfig):
    name = "decisions"
    verbose_name = "Decisions"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from decisions import contributions, events, projectors, search, services  # noqa: F401
