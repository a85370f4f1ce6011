"""The ground floor as a Django app."""

from django.apps import AppConfig


class CoreConfig(AppConfig):
    """The log's tables; in every store."""

    name = "memoryhub.core"
    label = "core"
    verbose_name = "Event log"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register events and projectors."""
        from memoryhub.core.log import quarantine  # noqa: F401
        from memoryhub.core.secrets import tags  # noqa: F401
