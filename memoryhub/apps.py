"""The registry of organisations, projects and tokens as a Django app."""

from django.apps import AppConfig


class HubConfig(AppConfig):
    """What is in hub.db beside Django's own tables."""

    name = "memoryhub"
    label = "memoryhub"
    verbose_name = "Memory Hub"
    default_auto_field = "django.db.models.BigAutoField"
