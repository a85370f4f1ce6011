from django.apps import AppConfig


class CoreConfig(AppConfig):
    name = "memoryhub.core"
    label = "core"
    verbose_name = "Event log"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from memoryhub.core.log import quarantine  # noqa: F401
        from memoryhub.core.secrets import tags  # noqa: F401
