"""Writing memories: what callers send, and what they are told."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, Field, JsonValue, StringConstraints, model_validator

from memories.events import ResourceLink
from memories.models import MemoryKind, MemoryScope, Resolution, ReviewState
from memoryhub.core.kinds.builtin import DEFAULT_KIND, KINDS, attribute_outlines
from memoryhub.core.schemas import (
    LOWERED,
    Command,
    EntityId,
    FilledLine,
    IdempotencyKey,
    Identifier,
    Line,
    Tag,
    Version,
    self_evident,
    unlisted,
)
from memoryhub.core.text import NOT_BLANK, ONE_LINE

MAX_CONTENT = 100_000

Title = Annotated[FilledLine, StringConstraints(max_length=200)]
Content = Annotated[str, StringConstraints(min_length=1, max_length=MAX_CONTENT, pattern=NOT_BLANK)]
Tags = Annotated[list[Tag], Field(max_length=32)]
TypeName = Annotated[
    str, StringConstraints(strip_whitespace=True, to_lower=True, max_length=64, pattern=ONE_LINE), LOWERED
]
Attributes = dict[str, JsonValue]


class Link(ResourceLink):
    """A link to a resource, as callers send it."""

    uri: Line = Field(min_length=1, max_length=2_000)
    type: Line = Field("related", min_length=1, max_length=64)


Links = Annotated[list[Link], Field(max_length=32)]


class IfExists(StrEnum):
    """What to do when a memory of the same title is there already."""

    ERROR = "error"
    UPDATE = "update"
    KEEP = "keep"


class AboutCode(Command):
    """Takes the pieces of code that an observation is about beside its attributes, which they are one of."""

    related_chunks: list[Line] | None = Field(None, json_schema_extra=unlisted)

    @model_validator(mode="before")
    @classmethod
    def _as_attribute(cls, given: Any) -> Any:
        if not isinstance(given, dict) or given.get("related_chunks") is None:
            return given
        attributes = given.get("attributes") or {}
        if not isinstance(attributes, dict):
            return given
        rest = {name: value for name, value in given.items() if name != "related_chunks"}
        return {**rest, "attributes": {"related_chunks": given["related_chunks"], **attributes}}


class MemoryWrite(AboutCode):
    """Write a memory."""

    title: Title = Field(description="short and specific")
    content: Content = Field(description="the text to keep, Markdown or plain", json_schema_extra=self_evident)
    kind: MemoryKind = MemoryKind(DEFAULT_KIND)
    type: TypeName = Field(
        "",
        description="; ".join(f"{kind.name}: {', '.join(kind.types) or 'any word'}" for kind in KINDS.values()),
    )
    scope: MemoryScope = Field(MemoryScope.PROJECT, description="whom it holds for", json_schema_extra=self_evident)
    attributes: Attributes = Field(
        default_factory=dict,
        description="; ".join(f"{name}: {text}" for name, text in attribute_outlines().items()),
    )
    tags: Tags = Field(default_factory=list, description="words to filter by", json_schema_extra=self_evident)
    topic_key: Identifier | None = Field(
        None, description="one memory a topic: written again, it is revised", json_schema_extra=self_evident
    )
    if_exists: IfExists = Field(IfExists.ERROR, description="when the title is taken")
    named: bool = Field(
        False, description="the title tells it apart: identical text is not counted", json_schema_extra=unlisted
    )
    author: Line = Field("", max_length=200, description="default: the client", json_schema_extra=unlisted)
    source: Line = Field("", max_length=1_000, description="where it comes from: a path, a URL")
    resource_links: Links = Field(default_factory=list, description="resources it is about", json_schema_extra=unlisted)
    idempotency_key: IdempotencyKey = None


class MemoryUpdate(AboutCode):
    """Change parts of a memory; what is left out stays. Makes a new version."""

    id: EntityId = Field(description="of the memory", json_schema_extra=self_evident)
    scope: MemoryScope = Field(MemoryScope.PROJECT, description="where it is", json_schema_extra=self_evident)
    base_version: Version | None = Field(
        None,
        description="the version you read; a newer one is a conflict or refused, never overwritten",
        json_schema_extra=self_evident,
    )
    title: Title | None = None
    content: Content | None = None
    type: TypeName | None = None
    attributes: Attributes | None = Field(None, description="replaces those named; null takes one away")
    must_be_current: bool = Field(
        False, description="refuse an older base_version even within the conflict window", json_schema_extra=unlisted
    )
    promote: bool = Field(False, description="from the session to the project")
    tags: Tags | None = Field(None, description="replaces all tags")
    author: Line | None = Field(None, max_length=200, json_schema_extra=unlisted)
    source: Line | None = Field(None, max_length=1_000)
    resource_links: Links | None = Field(None, json_schema_extra=unlisted)
    change_reason: str = Field("", max_length=1_000, description="why", json_schema_extra=self_evident)
    idempotency_key: IdempotencyKey = None


class MemoryTouch(Command):
    """Do something to a memory as a whole."""

    id: EntityId = Field(description="of the memory", json_schema_extra=self_evident)
    scope: MemoryScope = Field(MemoryScope.PROJECT, description="where it is", json_schema_extra=self_evident)
    reason: str = Field("", max_length=1_000, description="why", json_schema_extra=self_evident)
    idempotency_key: IdempotencyKey = None


class MemoryDelete(MemoryTouch):
    """Delete a memory, softly or for good."""

    permanent: bool = Field(False, description="erase the text of one that is deleted softly; asks to confirm")
    confirm_token: str | None = Field(
        None, max_length=64, description="from the answer that asked to confirm", json_schema_extra=unlisted
    )


class MemoryRestore(MemoryTouch):
    """Bring a deleted memory back, or an earlier version as a new one."""

    version: Version | None = Field(None, description="make this version the current one again")


class ConflictResolve(Command):
    """Settle a conflict between two versions of a memory."""

    id: EntityId = Field(description="of the conflict")
    scope: MemoryScope = Field(MemoryScope.PROJECT, description="where it is", json_schema_extra=self_evident)
    resolution: Resolution = Field(description="both makes the earlier version a memory of its own")
    content: Content | None = Field(None, description="the merged text, for merge")
    title: Title | None = Field(None, description="for merge: a new title; for both: that of the new memory")
    reason: str = Field("", max_length=1_000, description="why", json_schema_extra=self_evident)
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
    ERASED = "erased"
    CONFLICT = "conflict"
    """Kept beside a version that the writer had not seen."""


class SimilarMemory(BaseModel):
    """A memory that says nearly the same as one that was just written."""

    id: int
    title: str
    alike: float
    """The share of all their words that both have, 0 to 1."""


class Embedding(StrEnum):
    """What becomes of the vector of a text that was written."""

    QUEUED = "queued"
    """The worker makes it anew, after the write."""
    KEPT = "kept"
    """The text is as it was, and so is its vector."""
    OFF = "off"
    """None is made: no embedding model is installed, or wanted."""


class WriteResult(BaseModel):
    """The answer to every write of a memory."""

    id: int
    version: int
    status: WriteStatus
    title: str
    scope: MemoryScope = MemoryScope.PROJECT
    redacted: list[str] = Field(default_factory=list)
    """Types of the secrets that were replaced before anything was kept."""
    similar: list[SimilarMemory] = Field(default_factory=list)
    """Of a new memory: those that say nearly the same; nothing is merged by itself."""
    conflict: int | None = None
    """The conflict that this write opened: another had written since the version that it was made from."""
    review: ReviewState = ReviewState.ACCEPTED
    """Whether a person stands behind it; where nobody asks, it is accepted."""
    review_reason: str = ""
    """Why it waits for a person, or was rejected."""
    accepted_version: int | None = None
    """The version that holds while this one waits."""
    embedding: Embedding | None = None
    """Whether what it wrote will be found by meaning too; None where it wrote no text."""


class ConflictResult(BaseModel):
    """How a conflict was settled."""

    id: int
    memory_id: int
    version: int
    """The version that stands now."""
    resolution: Resolution
    split_id: int | None = None
    """The memory that the earlier version became."""
