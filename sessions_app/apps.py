from django.apps import AppConfig


class SessionsConfig(AppConfig):
    name = "sessions_app"
    verbose_name = "Sessions"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from memoryhub.config import current_settings  # noqa: F401
        from sessions_app import projectors, search  # noqa: F401
        from sessions_app.services import profile  # noqa: F401
