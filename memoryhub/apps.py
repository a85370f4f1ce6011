from pathlib import Path

from django.apps import AppConfig, apps
from django.db.models.signals import post_migrate


class HubConfig(AppConfig):
    name = "memoryhub"
    label = "memoryhub"
    verbose_name = "Memory Hub"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        if apps.is_installed("django.contrib.auth"):
            from memoryhub.registry.people import sync_groups

            post_migrate.connect(sync_groups, sender=self)
        from memoryhub.core.contributions import first_offers
        from memoryhub.registry import access_history  # noqa: F401

        first_offers.append(_offer_start)

        post_migrate.connect(_install_schedules, dispatch_uid="memoryhub.schedules")


# Other sessions need none of what it imports
def _offer_start(folder: Path, project: str) -> str:
    from memoryhub.transfer.start_plan import offer_start

    return offer_start(folder, project)


# With the tables of the queue
def _install_schedules(app_config: AppConfig, using: str, **_: object) -> None:
    if app_config.label == "django_q" and using == "jobs":
        from memoryhub.ops.jobs import install_schedules

        install_schedules()
