"""Input and output of REST and MCP, which share these schemas: of writing and reading memories."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, Field, JsonValue, StringConstraints, computed_field, model_validator

from memories.events import (
    ENTRY_ANCHORED,
    MEMORY_DELETED,
    MEMORY_RESTORED,
    MEMORY_REVISED,
    MEMORY_SEEN,
    MEMORY_WRITTEN,
    CopiedFrom,
    ResourceLink,
)
from memories.models import MemoryKind, MemoryScope, Resolution, ReviewState
from memories.schemas.validity import ANCHORS, AmendedEntry, AnchorNames, MarkView
from memories.validity.marks import MarkKind
from memoryhub.core.kinds import DEFAULT_KIND, KINDS, attribute_outlines
from memoryhub.core.schemas import (
    LOWERED,
    MAX_AUTHOR,
    MAX_INTEGER,
    Command,
    EntityId,
    FilledLine,
    IdempotencyKey,
    Identifier,
    Instant,
    Line,
    Moment,
    Paging,
    Tag,
    Version,
    at_most,
    explained_here,
    only_in_full,
    self_evident,
    unlisted,
)
from memoryhub.core.search import Retrieval
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
    """A link to a resource."""

    uri: Line = Field(min_length=1, max_length=2_000)
    type: Line = Field("related", min_length=1, max_length=64)


Links = Annotated[list[Link], Field(max_length=32)]


class IfExists(StrEnum):
    """What to do if a memory with the same title exists."""

    ERROR = "error"
    UPDATE = "update"
    KEEP = "keep"


# The first two types of each kind: an error lists the others.
_SOME_TYPES = dict.fromkeys(name for kind in KINDS.values() for name in kind.types[:2])


class AttributeArguments(Command):
    """Accepts attributes that every kind, or a client, knows as arguments of their own; stored as attributes."""

    related_chunks: list[Line] | None = Field(None, description="ids of related code", json_schema_extra=only_in_full)
    check: Line | None = Field(
        None,
        max_length=500,
        description="proves it: `make test` exits 0",
        json_schema_extra=only_in_full,
    )

    @model_validator(mode="before")
    @classmethod
    def _as_attributes(cls, fields: Any) -> Any:
        if not isinstance(fields, dict):
            return fields
        arguments = {name: fields[name] or None for name in ("related_chunks", "check") if fields.get(name) is not None}
        attributes = fields.get("attributes") or {}
        if not arguments or not isinstance(attributes, dict):
            return fields
        remaining = {name: value for name, value in fields.items() if name not in arguments}
        return {**remaining, "attributes": {**arguments, **attributes}}


class MemoryWrite(AttributeArguments):
    """Write a memory."""

    title: Title = Field(description="short and specific", json_schema_extra=self_evident)
    content: Content = Field(description="text to store, Markdown or plain", json_schema_extra=self_evident)
    kind: MemoryKind = Field(MemoryKind(DEFAULT_KIND), description="failure: what was tried and failed")
    type: TypeName = Field("", description=f"e.g. {', '.join(_SOME_TYPES)}")
    scope: MemoryScope = Field(MemoryScope.PROJECT, description="who sees it", json_schema_extra=explained_here)
    attributes: Attributes = Field(
        default_factory=dict, description="; ".join(f"{name}: {text}" for name, text in attribute_outlines().items())
    )
    tags: Tags = Field(default_factory=list, description="words to filter by", json_schema_extra=self_evident)
    topic_key: Identifier | None = Field(
        None, description="one memory per topic: writing again revises it", json_schema_extra=self_evident
    )
    if_exists: IfExists = Field(IfExists.ERROR, description="when the title exists", json_schema_extra=only_in_full)
    named: bool = Field(
        False,
        description="the title is unique: identical text isn't counted as a repetition",
        json_schema_extra=unlisted,
    )
    author: Line = Field("", max_length=MAX_AUTHOR, description="default: the client", json_schema_extra=only_in_full)
    source: Line = Field("", max_length=1_000, description="path or URL", json_schema_extra=self_evident)
    resource_links: Links = Field(default_factory=list, description="related resources", json_schema_extra=only_in_full)
    anchors: AnchorNames | None = Field(None, description=ANCHORS, json_schema_extra=only_in_full)
    idempotency_key: IdempotencyKey = None


class ImportedMemory(MemoryWrite):
    """A memory of another tool: when it was written there, and last changed."""

    written_at: Instant | None = None
    revised_at: Instant | None = None
    # Set only for files that are not the project's
    copied_from: CopiedFrom | None = None


class MemoryUpdate(AttributeArguments):
    """Change parts of a memory as a new version; omitted fields stay unchanged."""

    id: EntityId = Field(description="id of the memory", json_schema_extra=self_evident)
    scope: MemoryScope = Field(MemoryScope.PROJECT, description="scope of the id", json_schema_extra=self_evident)
    base_version: Version | None = Field(
        None,
        description="version you read; a newer one is never overwritten: it becomes a conflict or an error",
        json_schema_extra=self_evident,
    )
    title: Title | None = None
    content: Content | None = None
    type: TypeName | None = None
    attributes: Attributes | None = Field(None, description="merged; null removes one")
    must_be_current: bool = Field(
        False, description="refuse an outdated base_version even within the conflict window", json_schema_extra=unlisted
    )
    promote: bool = Field(False, description="move it from the session to the project", json_schema_extra=unlisted)
    tags: Tags | None = Field(None, description="replaces all")
    author: Line | None = Field(None, max_length=MAX_AUTHOR, json_schema_extra=only_in_full)
    source: Line | None = Field(None, max_length=1_000, json_schema_extra=unlisted)
    resource_links: Links | None = Field(None, json_schema_extra=only_in_full)
    anchors: AnchorNames | None = Field(None, description="replace all", json_schema_extra=only_in_full)
    change_reason: str = Field("", max_length=1_000, description="why", json_schema_extra=self_evident)
    idempotency_key: IdempotencyKey = None


class MemoryTouch(Command):
    """A change of a whole memory."""

    id: EntityId = Field(description="id of the memory", json_schema_extra=self_evident)
    scope: MemoryScope = Field(MemoryScope.PROJECT, description="scope of the id", json_schema_extra=self_evident)
    reason: str = Field("", max_length=1_000, description="why", json_schema_extra=self_evident)
    idempotency_key: IdempotencyKey = None


class MemoryDelete(MemoryTouch):
    """Delete a memory, or erase a deleted one permanently."""

    permanent: bool = Field(
        False, description="erase the text of a deleted memory; asks to confirm", json_schema_extra=self_evident
    )
    confirm_token: str | None = Field(
        None, max_length=64, description="from the answer that asked for confirmation", json_schema_extra=unlisted
    )


class MemoryRestore(MemoryTouch):
    """Restore a deleted memory, or an earlier version as a new one."""

    version: Version | None = Field(None, description="restore this version")


class ConflictResolve(Command):
    """Resolve a conflict between two versions of a memory."""

    id: EntityId = Field(description="id of the conflict", json_schema_extra=self_evident)
    scope: MemoryScope = Field(MemoryScope.PROJECT, description="scope of the id", json_schema_extra=self_evident)
    resolution: Resolution = Field(description="both: the earlier version becomes a new memory")
    content: Content | None = Field(None, description="for merge: the merged text")
    title: Title | None = Field(None, description="for merge: new title; for both: title of the new memory")
    reason: str = Field("", max_length=1_000, description="why", json_schema_extra=self_evident)
    resolved_by: Line = Field(
        "", max_length=MAX_AUTHOR, description="default: the client", json_schema_extra=only_in_full
    )
    idempotency_key: IdempotencyKey = None


class WriteStatus(StrEnum):
    """What a write did."""

    # Formats with the fields of ``WriteResult``: the line that models get, and the message on a page
    line: str
    message: str
    # The type of the event that such a write appends
    event: str

    def __new__(cls, value: str, line: str, message: str = "", event: str = "") -> WriteStatus:
        member = str.__new__(cls, value)
        member._value_ = value
        member.line = line
        member.message = message
        member.event = event
        return member

    CREATED = "created", "created #{id} {title}", "Created #{id}.", MEMORY_WRITTEN.name
    UPDATED = "updated", "updated #{id} to v{version} {title}", "Saved version {version}.", MEMORY_REVISED.name
    SEEN = (
        "seen",
        "#{id} has this text already; its count was increased {title}",
        "#{id} already has this text. It was counted as seen again.",
        MEMORY_SEEN.name,
    )
    KEPT = "kept", "kept #{id} as it is {title}", "#{id} was not changed."
    UNCHANGED = "unchanged", "#{id} is unchanged at v{version} {title}", "Nothing changed, so no version was added."
    DELETED = (
        "deleted",
        "deleted #{id} {title} at {deleted_at:%Y-%m-%dT%H:%M:%SZ}; memory_restore brings it back",
        "Deleted #{id}. You can restore it at any time.",
        MEMORY_DELETED.name,
    )
    ANCHORED = "anchored", "changed the anchors of #{id} {title}", "", ENTRY_ANCHORED.name
    RESTORED = "restored", "restored #{id} {title}", "Restored #{id}.", MEMORY_RESTORED.name
    ERASED = "erased", "permanently erased #{id} {title}", "Deleted #{id} permanently."
    # Stored next to a newer version that the writer had not read.
    CONFLICT = (
        "conflict",
        "stored as v{version} of #{id}, next to a version that you had not read: conflict #{conflict} is open, "
        "resolve it with memory_conflict_resolve; {title}",
    )

    @classmethod
    def of_event(cls, event_type: str) -> WriteStatus:
        return next(status for status in cls if status.event == event_type)


class SimilarMemory(BaseModel):
    """A memory that is almost identical to the new one."""

    id: int
    title: str
    # Share of common words, 0 to 1.
    alike: float


class Embedding(StrEnum):
    """What happens to the embedding of a written text."""

    # The worker computes it after the write.
    QUEUED = "queued"
    # The text is unchanged.
    KEPT = "kept"
    # No embedding model is installed or enabled.
    OFF = "off"


class WriteResult(BaseModel):
    """Result of writing a memory."""

    id: int
    version: int
    status: WriteStatus
    title: str
    scope: MemoryScope = MemoryScope.PROJECT
    # Types of the secrets that were replaced before storing.
    redacted: list[str] = Field(default_factory=list)
    # Near duplicates of a new memory; they are never merged automatically.
    similar: list[SimilarMemory] = Field(default_factory=list)
    amendments: list[AmendedEntry] = Field(default_factory=list)
    # The conflict that this write opened, if base_version was outdated.
    conflict: int | None = None
    # Without a review policy every write is accepted.
    review: ReviewState = ReviewState.ACCEPTED
    # Why it needs a review, or was rejected.
    review_reason: str = ""
    # The accepted version while this one is proposed.
    accepted_version: int | None = None
    # None if no text was written.
    embedding: Embedding | None = None
    # The memory after the write; None once it is erased
    memory_type: str | None = None
    tags: list[str] | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None
    # Set by a deletion.
    deleted_at: datetime | None = None
    # Set by a deletion: whether the text is erased.
    permanent: bool | None = None
    # Set by a deletion: False once the text is erased.
    can_restore: bool | None = None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def embedding_generated(self) -> bool | None:
        """Whether the memory has an embedding, or one is being computed; None if no text was written."""
        return None if self.embedding is None else self.embedding is not Embedding.OFF

    @computed_field  # type: ignore[prop-decorator]
    @property
    def embedding_regenerated(self) -> bool | None:
        """Whether a new embedding is being computed in place of an earlier one; None if no text was written."""
        if self.embedding is None:
            return None
        return self.embedding is Embedding.QUEUED and self.status is not WriteStatus.CREATED


class ConflictResult(BaseModel):
    """Result of resolving a conflict."""

    id: int
    memory_id: int
    # Current version of the memory.
    version: int
    resolution: Resolution
    # The new memory with the earlier version, for both.
    split_id: int | None = None


class MemoryView(BaseModel):
    """A memory."""

    id: int
    kind: str
    type: str
    # The same as ``type``
    memory_type: str
    scope: str
    title: str
    content: str
    tags: list[str]
    topic_key: str | None
    author: str
    source: str
    resource_links: list[dict[str, Any]]
    # With the defaults of numbers, such as priority 50
    attributes: dict[str, Any]
    # From the attributes
    related_chunks: list[str]
    session_id: str
    version: int
    ephemeral: bool
    seen_count: int
    created_at: datetime
    updated_at: datetime
    deleted_at: datetime | None
    # accepted, proposed or rejected
    review: str
    # Why it needs a review, or was rejected.
    review_reason: str
    # The accepted version while a later one is proposed.
    accepted_version: int | None
    # valid_until has passed.
    expired: bool
    # Ids of unresolved conflicts between its versions.
    conflicts: list[int]
    # Ids of what supersedes it.
    superseded_by: list[int]
    # The code that it is about, such as ``src/auth.py:10-24``
    anchors: list[str] = Field(default_factory=list)
    # What is known against it: the code that it is about has changed, its branch is not merged, a newer entry amends it
    marks: list[MarkView] = Field(default_factory=list)
    # When a check of the present text passed last.
    checked_at: datetime | None = None
    # Since when and why it is in quarantine; lists and searches then leave it out.
    quarantine: str = ""


class VersionView(BaseModel):
    """A version of a memory and the event that wrote it."""

    event: int
    version: int
    base_version: int | None
    conflicts_with: int | None
    title: str | None
    content: str | None
    tags: list[str]
    type: str | None
    attributes: dict[str, Any]
    # Word diff to the previous version: [-removed-] and {+added+}.
    diff: str
    reason: str
    actor: str
    source: str
    session_id: str
    created_at: datetime


class MemoryGet(Retrieval):
    """Get memories by id or by title."""

    ids: list[EntityId] = Field(
        default_factory=list, max_length=50, description="one or many", json_schema_extra=self_evident
    )
    name: str | None = Field(None, max_length=300, description="title in any case, or topic_key")
    scope: MemoryScope | None = Field(
        None,
        description="default: for ids the project; for a name the nearest scope that has it",
        json_schema_extra=self_evident,
    )
    kind: MemoryKind | None = Field(None, description="with name: only this kind", json_schema_extra=unlisted)
    inherit: bool = Field(True, description="look for the name in parent scopes too", json_schema_extra=unlisted)
    versions: bool = Field(False, description="include the history", json_schema_extra=self_evident)
    relations: bool = Field(False, description="include relations", json_schema_extra=self_evident)
    use: bool = Field(False, description="include how often it was sent, found and cited", json_schema_extra=unlisted)
    include_deleted: bool = Field(False, description="include deleted memories", json_schema_extra=unlisted)
    max_tokens: int | None = Field(None, ge=50, le=100_000, description="budget of the whole answer")


class Filters(Retrieval, Paging):
    """Filters of lists and searches."""

    kind: MemoryKind | None = Field(None, description="only this kind", json_schema_extra=self_evident)
    type: TypeName | None = Field(None, description="only this type", json_schema_extra=self_evident)
    scope: MemoryScope | None = Field(
        None, description="only this scope; default: all that apply here", json_schema_extra=self_evident
    )
    tags: Tags = Field(default_factory=list, description="match all")
    session_id: str | None = Field(None, max_length=200, description="only of this session", json_schema_extra=unlisted)
    since: Moment | None = Field(None, description="created at or after", json_schema_extra=self_evident)
    until: Moment | None = Field(None, description="created before", json_schema_extra=self_evident)


class MemoryList(Filters):
    """List memories, last changed first."""

    scope: MemoryScope | None = Field(None, description="only this scope; default: the project")
    include_deleted: bool = Field(False, description="include deleted memories", json_schema_extra=self_evident)
    mark: MarkKind | None = Field(
        None, description="with this mark: changed, origin, …", json_schema_extra=only_in_full
    )


class SearchSourceName(StrEnum):
    """Sources of a search."""

    MEMORY = "memory"
    COMMIT = "commit"
    SESSION = "session"
    MESSAGE = "message"
    # Those that failed
    COMMAND = "command"
    DECISION = "decision"


class MemorySearch(Filters):
    """Search by a question in plain words."""

    query: str = Field(
        min_length=1, max_length=2_000, description="question in plain words", json_schema_extra=self_evident
    )
    iteration_id: EntityId | None = Field(None, description="only of this iteration", json_schema_extra=only_in_full)
    sources: list[SearchSourceName] = Field(
        default_factory=list, max_length=5, description="default: all", json_schema_extra=self_evident
    )


class Stats(Retrieval):
    """What the store holds."""


class Timeline(Command):
    """What happened around an id or a time."""

    id: EntityId | None = Field(None, description="around this id; default: the end of the log")
    at: Moment | None = Field(None, description="around this time")
    iteration_id: EntityId | None = Field(None, description="newest 100 events of this iteration")
    limit: Annotated[int, Field(ge=1, le=MAX_INTEGER), at_most(500)] | None = Field(
        None, description="number of events in all, instead of before and after", json_schema_extra=explained_here
    )
    before: Annotated[int, at_most(100)] = Field(
        10, ge=0, le=MAX_INTEGER, description="events before", json_schema_extra=self_evident
    )
    after: Annotated[int, at_most(100)] = Field(
        10, ge=0, le=MAX_INTEGER, description="events after", json_schema_extra=self_evident
    )
