"""Read models of what we know. Projectors alone write them."""

from memories.models.kinds import KIND_MODELS
from memories.models.link import PROJECT, Conflict, EndType, Relation, RelationType, Resolution, Tag
from memories.models.memory import (
    Memory,
    MemoryKind,
    MemoryQuerySet,
    MemoryScope,
    MemoryTag,
    MemoryVersion,
    ReviewState,
)
from memories.models.search import ContextPack, EmbeddingModel, MemoryCitation, MemoryUse, SearchDocument, Vector

__all__ = [
    "KIND_MODELS",
    "PROJECT",
    "Conflict",
    "ContextPack",
    "EmbeddingModel",
    "EndType",
    "Memory",
    "MemoryCitation",
    "MemoryKind",
    "MemoryQuerySet",
    "MemoryScope",
    "MemoryTag",
    "MemoryUse",
    "MemoryVersion",
    "Relation",
    "RelationType",
    "Resolution",
    "ReviewState",
    "SearchDocument",
    "Tag",
    "Vector",
]
