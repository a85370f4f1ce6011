"""What callers send and get: the same at REST and MCP."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, Field, StringConstraints

from memories.events import ResourceLink
from memories.models import MemoryType
from memoryhub.core.retrieval import Retrieval
from memoryhub.core.schemas import Command, EntityId, IdempotencyKey, Identifier, Paging, Tag, unlisted

MAX_CONTENT = 100_000
Title = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200)]
Content = Annotated[str, StringConstraints(min_length=1, max_length=MAX_CONTENT, pattern=r"\S")]
Tags = Annotated[list[Tag], Field(max_length=32)]
Links = Annotated[list[ResourceLink], Field(max_length=32)]


class IfExists(StrEnum):
    """What to do when a memory of the same title is there already."""

    ERROR = "error"
    UPDATE = "update"
    KEEP = "keep"


class MemoryWrite(Command):
    """Write a memory."""

    title: Title = Field(description="short and specific")
    content: Content = Field(description="the text to keep, Markdown or plain")
    type: MemoryType = MemoryType.NOTE
    tags: Tags = Field(default_factory=list, description="words to filter by")
    topic_key: Identifier | None = Field(None, description="one memory a topic: written again, it is revised")
    if_exists: IfExists = Field(IfExists.ERROR, description="when the title is taken")
    author: str = Field("", max_length=200, description="default: the client", json_schema_extra=unlisted)
    source: str = Field("", max_length=1_000, description="where it comes from: a path, a URL")
    resource_links: Links = Field(default_factory=list, description="resources it is about", json_schema_extra=unlisted)
    idempotency_key: IdempotencyKey = None


class MemoryUpdate(Command):
    """Change parts of a memory; what is left out stays. Makes a new version."""

    id: EntityId = Field(description="of the memory")
    base_version: int | None = Field(
        None, ge=1, description="the version you read; refused if it is not the current one"
    )
    title: Title | None = None
    content: Content | None = None
    type: MemoryType | None = None
    tags: Tags | None = Field(None, description="replaces all tags")
    author: str | None = Field(None, max_length=200, json_schema_extra=unlisted)
    source: str | None = Field(None, max_length=1_000)
    resource_links: Links | None = Field(None, json_schema_extra=unlisted)
    change_reason: str = Field("", max_length=1_000, description="why")
    idempotency_key: IdempotencyKey = None


class MemoryTouch(Command):
    """Delete or restore a memory."""

    id: EntityId = Field(description="of the memory")
    reason: str = Field("", max_length=1_000, description="why")
    idempotency_key: IdempotencyKey = None


class WriteStatus(StrEnum):
    """What a write did."""

    CREATED = "created"
    UPDATED = "updated"
    SEEN = "seen"
    KEPT = "kept"
    UNCHANGED = "unchanged"
    DELETED = "deleted"
    RESTORED = "restored"


class WriteResult(BaseModel):
    """The answer to every write of a memory."""

    id: int
    version: int
    status: WriteStatus
    title: str
    redacted: list[str] = Field(default_factory=list)
    """Types of the secrets that were replaced before anything was kept."""


class MemoryView(BaseModel):
    """A memory as every door shows it."""

    id: int
    kind: str
    type: str
    title: str
    content: str
    tags: list[str]
    topic_key: str | None
    author: str
    source: str
    resource_links: list[dict[str, Any]]
    session_id: str
    version: int
    ephemeral: bool
    seen_count: int
    created_at: datetime
    updated_at: datetime
    deleted_at: datetime | None


class VersionView(BaseModel):
    """One version of a memory, with the event that is its evidence."""

    event: int
    version: int
    base_version: int | None
    title: str | None
    content: str | None
    tags: list[str]
    reason: str
    actor: str
    source: str
    session_id: str
    created_at: datetime


class MemoryGet(Retrieval):
    """Get memories by id or by title."""

    ids: list[EntityId] = Field(default_factory=list, max_length=50, description="one or many")
    name: str | None = Field(None, max_length=300, description="exact title or topic_key instead of ids")
    versions: bool = Field(False, description="with the history")
    include_deleted: bool = Field(False, description="show deleted ones too")
    max_tokens: int | None = Field(None, ge=50, le=100_000, description="budget of the whole answer")


class Filters(Retrieval, Paging):
    """What lists and searches filter by."""

    type: MemoryType | None = Field(None, description="only this type")
    tags: Tags = Field(default_factory=list, description="must have all of these")
    session_id: str | None = Field(None, max_length=200, description="only of this session")
    since: datetime | None = Field(None, description="created at or after")
    until: datetime | None = Field(None, description="created before")


class MemoryList(Filters):
    """List memories, last changed first."""

    include_deleted: bool = Field(False, description="show deleted ones too")


class SearchSourceName(StrEnum):
    """What a search looks through."""

    MEMORY = "memory"
    COMMIT = "commit"
    SESSION = "session"
    MESSAGE = "message"


class MemorySearch(Filters):
    """Search by a question in words."""

    query: str = Field(min_length=1, max_length=2_000, description="the question, in your own words")
    sources: list[SearchSourceName] = Field(default_factory=list, max_length=4, description="default: all")


class Stats(Retrieval):
    """What the store holds."""


class Timeline(Command):
    """What happened around an id or a time."""

    id: EntityId | None = Field(None, description="around this id; default: the end of the log")
    at: datetime | None = Field(None, description="around this time instead")
    before: int = Field(10, ge=0, le=100, description="events before")
    after: int = Field(10, ge=0, le=100, description="events after")
