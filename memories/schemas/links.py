"""Input and output of tags and relations, and the predefined tags."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, Field, JsonValue, StringConstraints, WithJsonSchema

from memories.models import AmendmentKind, EndType, MemoryScope, RelationType
from memories.schemas import WriteStatus
from memoryhub.core.kinds import kind_members
from memoryhub.core.schemas import (
    LISTED_AS,
    LOWERED,
    MAX_AUTHOR,
    MAX_INTEGER,
    Command,
    EntityId,
    IdempotencyKey,
    Identifier,
    Line,
    Paging,
    Tag,
    only_in_full,
    self_evident,
    unlisted,
)
from memoryhub.core.search import Retrieval
from memoryhub.core.text import FILLED_LINE

CATEGORIES: Mapping[str, tuple[str, ...]] = {
    "language": ("python", "typescript", "javascript", "rust", "go", "java", "sql", "bash", "markdown"),
    "domain": ("web", "cli", "api", "database", "ml", "devops", "security", "testing", "documentation"),
    "category": ("code_style", "architecture", "behavior", "performance", "error_handling", "logging"),
    "meta": ("deprecated", "experimental", "stable", "required", "optional"),
}

# Category by tag
PREDEFINED: Mapping[str, str] = {name: category for category, names in CATEGORIES.items() for name in names}

# Category of tags without one
FREE = "custom"


class EntryType(StrEnum):
    """Type of the thing that an id names."""

    MEMORY = "memory"
    vars().update(kind_members())
    DECISION = "decision"
    COMMIT = "commit"
    SESSION = "session"
    PROJECT = "project"


def as_text(value: object) -> object:
    """Return a whole number as text, and anything else as it is."""
    if isinstance(value, bool) or not isinstance(value, int):
        return value
    return str(value)


# An id, with or without "#", or "project"; parsed by memories.references.
EndReference = Annotated[Identifier, BeforeValidator(as_text)]
_TAG_FORMS: list[JsonValue] = [
    {"type": "string", "minLength": 1, "maxLength": 64, "pattern": FILLED_LINE},
    {"type": "integer", "minimum": 1, "maximum": MAX_INTEGER},
]
# Names of tags, or ids of described tags.
TagNames = Annotated[
    list[EntityId | Tag],
    Field(min_length=1, max_length=32),
    BeforeValidator(lambda value: [value] if isinstance(value, str | int | float) else value),
    WithJsonSchema(
        {
            "anyOf": [{"type": "array", "items": {"anyOf": _TAG_FORMS}, "minItems": 1, "maxItems": 32}, *_TAG_FORMS],
            LISTED_AS: {"type": "array", "items": {"type": "string"}},
        }
    ),
]
Category = Annotated[
    str,
    StringConstraints(strip_whitespace=True, to_lower=True, min_length=1, max_length=64, pattern=FILLED_LINE),
    LOWERED,
]
_Type = Annotated[EntryType | None, Field(json_schema_extra=only_in_full)]
_Scope = Annotated[MemoryScope, Field(description="scope of the id", json_schema_extra=unlisted)]


class TagCreate(Command):
    """Describe a tag."""

    name: Tag
    category: Category = Field(FREE, description="language, domain, category, meta, or your own")
    description: str = Field("", max_length=2_000, description="what the tag marks", json_schema_extra=self_evident)
    scope: _Scope = MemoryScope.PROJECT
    idempotency_key: IdempotencyKey = None


class TagList(Retrieval, Paging):
    """List tags by name: predefined, described and merely used ones."""

    category: Category | None = Field(None, description="only of this category", json_schema_extra=self_evident)
    used: bool = Field(False, description="only tags in use", json_schema_extra=self_evident)
    prefix: Annotated[str, StringConstraints(strip_whitespace=True, to_lower=True, max_length=64)] = Field(
        "", description="only names with this prefix", json_schema_extra=self_evident
    )
    id: EndReference | None = Field(None, description="only those of this memory, or 'project'")
    entry_type: _Type = None
    scope: MemoryScope = Field(MemoryScope.PROJECT, description="only this scope")


class TagAttach(Command):
    """Attach tags to a memory."""

    id: EndReference = Field(description="of a memory, or 'project'")
    tags: TagNames = Field(description="names", json_schema_extra=self_evident)
    entry_type: _Type = None
    scope: _Scope = MemoryScope.PROJECT
    idempotency_key: IdempotencyKey = None


class TagDetach(TagAttach):
    """Detach tags from a memory."""


class TagView(BaseModel):
    """A tag."""

    # The event that described it; None if predefined or only used.
    id: int | None = None
    name: str
    category: str
    description: str
    predefined: bool
    # Number of memories with this tag, without deleted ones.
    memories: int
    on_project: bool


class TagResult(TagView):
    """A described tag."""

    redacted: list[str] = Field(default_factory=list)


class TagsChanged(BaseModel):
    """Result of attaching or detaching tags."""

    # Id of the memory; 0 is the project.
    id: int
    type: EndType
    title: str
    scope: MemoryScope
    # Current version of the memory; None for the project.
    version: int | None
    status: WriteStatus
    changed: list[str]
    # All its tags after the change.
    tags: list[str]
    redacted: list[str] = Field(default_factory=list)


class Direction(StrEnum):
    """Which end of a relation an id is."""

    OUT = "out"
    IN = "in"
    BOTH = "both"


class RelationCreate(Command):
    """Relate two things of one store."""

    source: EndReference = Field(description="id, or 'project'")
    relation: RelationType = Field(description="from source to target", json_schema_extra=self_evident)
    target: EndReference = Field(description="id, or 'project'")
    source_type: _Type = None
    target_type: _Type = None
    scope: _Scope = MemoryScope.PROJECT
    author: Line = Field("", max_length=MAX_AUTHOR, description="default: the client", json_schema_extra=only_in_full)
    idempotency_key: IdempotencyKey = None


class RelationList(Retrieval, Paging):
    """List relations, newest first."""

    id: EndReference | None = Field(None, description="memory, decision, commit, session, or 'project'")
    relation: RelationType | None = Field(None, description="only these", json_schema_extra=self_evident)
    direction: Direction = Field(Direction.BOTH, description="out: id is the source; in: the target")
    entry_type: _Type = None
    source: EndReference | None = Field(None, json_schema_extra=unlisted)
    target: EndReference | None = Field(None, json_schema_extra=unlisted)
    source_type: _Type = None
    target_type: _Type = None
    include_deleted: bool = Field(
        False, description="include those of deleted memories", json_schema_extra=self_evident
    )
    scope: MemoryScope = Field(MemoryScope.PROJECT, description="only this scope")


class RelationDelete(Command):
    """Delete a relation."""

    id: EntityId | None = Field(None, description="id of the relation", json_schema_extra=self_evident)
    source: EndReference | None = Field(
        None, description="with relation and target, instead of id", json_schema_extra=unlisted
    )
    relation: RelationType | None = Field(None, json_schema_extra=unlisted)
    target: EndReference | None = Field(None, json_schema_extra=unlisted)
    source_type: _Type = None
    target_type: _Type = None
    reason: str = Field("", max_length=1_000, description="why", json_schema_extra=self_evident)
    scope: _Scope = MemoryScope.PROJECT
    idempotency_key: IdempotencyKey = None


class EndView(BaseModel):
    """One end of a relation."""

    type: EndType
    # Kind of a memory; empty for other things.
    kind: str
    # 0 is the project.
    id: int
    title: str
    deleted: bool


class AmendmentList(Retrieval, Paging):
    """List pairs of entries that wait for a verdict: the newer seems to amend the older."""

    all: bool = Field(False, description="include those that nobody is asked about, since they are not certain")
    scope: MemoryScope = Field(MemoryScope.PROJECT, description="only this scope")


class AmendmentView(BaseModel):
    """A pair of entries of which the newer seems to amend or contradict the older."""

    id: int
    kind: AmendmentKind
    # Explicit words of the same author
    certain: bool
    newer: EndView
    older: EndView
    scope: MemoryScope
    created_at: datetime


class AmendmentVerdict(Command):
    """Accept that an entry amends an earlier one, or dismiss it."""

    newer_id: EntityId = Field(description="of the entry that seems to amend the other")
    older_id: EntityId = Field(description="of the earlier entry")
    verdict: Literal["accepted", "dismissed"] = Field(
        description="accepted: the newer one supersedes the older; dismissed: both are true"
    )
    reason: str = Field("", max_length=1_000, description="why", json_schema_extra=self_evident)
    scope: _Scope = MemoryScope.PROJECT


class AmendmentResult(BaseModel):
    """An amendment after a verdict."""

    id: int
    newer_id: int
    older_id: int
    kind: AmendmentKind
    # The older entry is superseded; False: both are true
    is_accepted: bool | None


class RelationView(BaseModel):
    """A relation; its id is the event that created it."""

    id: int
    relation: RelationType
    source: EndView
    target: EndView
    scope: MemoryScope
    actor: str
    session_id: str
    created_at: datetime


class LinkStatus(StrEnum):
    """What happened to a relation."""

    CREATED = "created"
    KEPT = "kept"
    DELETED = "deleted"


class RelationResult(RelationView):
    """Result of creating or deleting a relation."""

    status: LinkStatus
