"""Decisions as a Django app."""

from django.apps import AppConfig


class DecisionsConfig(AppConfig):
    """What we chose."""

    name = "decisions"
    verbose_name = "Decisions"
    default_auto_field = "django.db.models.BigAutoField"
