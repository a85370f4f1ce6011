from django.apps import AppConfig


class GovernanceConfig(AppConfig):
    name = "governance"
    verbose_name = "Governance"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from governance import projectors  # noqa: F401
        from governance.staleness import selectors  # noqa: F401
        from memoryhub.core.events.rollback import define_effects_in

        define_effects_in("governance.rollback.reversal")
