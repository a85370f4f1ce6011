"""Sessions and commits as a Django app."""

from django.apps import AppConfig


class SessionsConfig(AppConfig):
    """What happened: sessions and commits."""

    name = "sessions_app"
    verbose_name = "Sessions"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register events, projectors and entities."""
        from memoryhub.config import current_rules, folder_file  # noqa: F401
        from sessions_app import entities, gatekeeper, projectors, search  # noqa: F401
