from django.apps import AppConfig


class CoreConfig(AppConfig):
    name = "memoryhub.core"
    label = "core"
    verbose_name = "Event log"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from memoryhub.core.backends.selected import machines
        from memoryhub.core.log import quarantine  # noqa: F401
        from memoryhub.core.secret_files import agree_by

        if machines.SHARED:
            agree_by(machines.agreed_secret)
