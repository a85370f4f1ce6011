"""Read models of what we know. Projectors alone write them."""

from memories.models.conflict import Conflict, Resolution
from memories.models.kinds import KIND_MODELS
from memories.models.link import PROJECT, EndType, Relation, RelationType, Tag
from memories.models.memory import (
    Memory,
    MemoryKind,
    MemoryQuerySet,
    MemoryScope,
    MemoryTag,
    MemoryVersion,
    ReviewState,
)
from memories.models.pack import ContextPack
from memories.models.search import SearchDocument
from memories.models.use import MemoryCitation, MemoryUse
from memories.models.vector import EmbeddingModel, Vector

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
