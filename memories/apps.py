from django.apps import AppConfig


class MemoriesConfig(AppConfig):
    name = "memories"
    verbose_name = "Memories"
    default_auto_field = "django.db.models.BigAutoField"

    # Imports with a side effect: each registers events, projectors, entities, pack sections, search sources or notes
    def ready(self) -> None:
        from memories import events, pack, projectors, services  # noqa: F401
        from memories.embeddings import following, meaning  # noqa: F401
        from memories.lessons import service  # noqa: F401
        from memories.search import index, sources  # noqa: F401
        from memories.uses import drain  # noqa: F401
        from memories.uses import projectors as use_projectors  # noqa: F401
        from memories.validity import projectors as validity_projectors  # noqa: F401
        from memories.worth import note_scores  # noqa: F401
