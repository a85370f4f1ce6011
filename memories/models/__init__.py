"""Read models of memories. Only projectors write them."""

from memories.models.link import PROJECT, Conflict, EndType, Relation, RelationType, Resolution, Tag
from memories.models.memory import (
    KIND_MODELS,
    Memory,
    MemoryKind,
    MemoryQuerySet,
    MemoryScope,
    MemoryTag,
    MemoryVersion,
    ReviewState,
)
from memories.models.search import (
    RECALL,
    ContextPack,
    EmbeddingModel,
    MemoryCitation,
    MemoryUse,
    SearchDocument,
    Vector,
)

__all__ = [
    "KIND_MODELS",
    "PROJECT",
    "RECALL",
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
