"""What can happen to a memory."""

from __future__ import annotations

from pydantic import Field

from memories.models import MemoryKind, MemoryType
from memoryhub.core.projection import define_event
from memoryhub.core.schemas import Payload, Tag


class ResourceLink(Payload):
    """A link to a resource that the memory is about."""

    uri: str = Field(min_length=1, max_length=2_000)
    type: str = Field("related", min_length=1, max_length=64)


class MemoryState(Payload):
    """The whole state of a memory; each version is one."""

    kind: MemoryKind = MemoryKind.OBSERVATION
    type: MemoryType = MemoryType.NOTE
    title: str = Field(min_length=1, max_length=300)
    content: str = Field(min_length=1)
    tags: list[Tag] = Field(default_factory=list)
    topic_key: str | None = None
    author: str = ""
    source: str = ""
    resource_links: list[ResourceLink] = Field(default_factory=list)


class MemoryWritten(MemoryState):
    """A memory came to be."""


class MemoryRevised(MemoryState):
    """A memory got a new state, made from the state that the writer had read."""

    memory_id: int
    version: int
    base_version: int
    reason: str = ""


class MemoryTouched(Payload):
    """Something happened to the memory as a whole."""

    memory_id: int
    reason: str = ""


MEMORY_WRITTEN = define_event("memory.written", MemoryWritten)
MEMORY_REVISED = define_event("memory.revised", MemoryRevised)
MEMORY_SEEN = define_event("memory.seen", MemoryTouched)
MEMORY_DELETED = define_event("memory.deleted", MemoryTouched)
MEMORY_RESTORED = define_event("memory.restored", MemoryTouched)
