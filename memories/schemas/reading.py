from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, Field

from memories.models import MemoryKind, MemoryScope
from memories.schemas.writing import Tags, TypeName
from memoryhub.core.schemas import (
    MAX_INTEGER,
    Command,
    EntityId,
    Moment,
    Paging,
    at_most,
    explained_here,
    only_in_full,
    self_evident,
    unlisted,
)
from memoryhub.core.search.retrieval import Retrieval


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
    name: str | None = Field(None, max_length=300, description="exact title or topic_key")
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


class SearchSourceName(StrEnum):
    """Sources of a search."""

    MEMORY = "memory"
    COMMIT = "commit"
    SESSION = "session"
    MESSAGE = "message"
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
