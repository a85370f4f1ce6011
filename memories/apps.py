"""Memories as a Django app."""

from django.apps import AppConfig


class MemoriesConfig(AppConfig):
    """What we know: memories, their versions, and the search over all that is kept."""

    name = "memories"
    verbose_name = "Memories"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register events, projectors, entities, packs and the search index."""
        from memories import events, pack, projectors  # noqa: F401
        from memories.embeddings import following, meaning  # noqa: F401
        from memories.search import checking as index_checking  # noqa: F401
        from memories.search import index, sources  # noqa: F401
        from memories.uses import drain  # noqa: F401
        from memories.uses import projectors as use_projectors  # noqa: F401
