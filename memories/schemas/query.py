from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated

from pydantic import BeforeValidator, Field

from memories.models import MemoryKind, MemoryScope, RelationType, Resolution
from memories.schemas import ConflictResolve, Tags
from memories.schemas.links import as_text
from memoryhub.core.kinds import KINDS, kind_members
from memoryhub.core.schemas import Command, EntityId, Identifier, Paging, explained_here, self_evident, unlisted
from memoryhub.core.search import Retrieval

DEFAULT_TOKENS = 1_500


class ContextPackRequest(Command):
    """Request a context pack: guidelines, decisions, facts, turns, conflicts and the last session's summary."""

    query: str = Field("", max_length=2_000, description="subject")
    max_tokens: int = Field(
        DEFAULT_TOKENS, ge=200, le=20_000, description="budget of the whole answer", json_schema_extra=self_evident
    )
    since: EntityId | None = Field(None, description="an earlier pack's number: only changes since")
    session_id: Identifier | None = Field(None, description="default: the client's", json_schema_extra=unlisted)


class ContextReplay(Command):
    """Rebuild a pack as it was sent."""

    id: EntityId = Field(description="id of the pack")


_PLURALS = {
    **{kind.accepted_plural: kind.name for kind in KINDS.values()},
    "memories": "memory",
    "projects": "project",
}


def _synonyms(names: Mapping[str, str]) -> BeforeValidator:
    return BeforeValidator(lambda value: names.get(value.strip().lower(), value) if isinstance(value, str) else value)


_ScopeName = BeforeValidator(lambda value: {"type": value} if isinstance(value, str) else value)
_TagList = BeforeValidator(lambda value: {"require": value} if isinstance(value, list) else value)


class QueryScope(Command):
    """Scopes of a query."""

    type: MemoryScope = Field(description="nearest scope")
    id: str = Field("", max_length=200, description="of a session")
    inherit: bool = Field(True, description="include parent scopes")


class QueryTags(Command):
    """Tags of the results."""

    include: Tags = Field(default_factory=list, description="match any")
    require: Tags = Field(default_factory=list, description="match all")
    exclude: Tags = Field(default_factory=list, description="match none")


class RelatedType(StrEnum):
    """Types of things that results can be related to."""

    MEMORY = "memory"
    vars().update(kind_members())
    PROJECT = "project"
    DECISION = "decision"
    COMMIT = "commit"
    SESSION = "session"


class RelatedTo(Command):
    """A direct relation of the results, in either direction."""

    type: Annotated[RelatedType, _synonyms(_PLURALS)]
    id: Annotated[str, BeforeValidator(as_text)] = Field(
        min_length=1, max_length=300, description="412, global#12 or a title"
    )
    relation: RelationType | None = None


class QueryOrder(StrEnum):
    """Order of the results."""

    RELEVANCE = "relevance"
    PRIORITY = "priority"
    NAME = "name"
    RECENT = "recent"


class MemoryQuery(Retrieval, Paging):
    """Query by kinds, scopes, tags, text and relations; results are ranked."""

    types: list[Annotated[MemoryKind, _synonyms(_PLURALS)]] = Field(
        default_factory=list, max_length=16, description="default: all", json_schema_extra=self_evident
    )
    type: str = Field("", max_length=64, description="only this type, such as security", json_schema_extra=unlisted)
    scope: Annotated[QueryScope | None, _ScopeName] = Field(
        None, description="default: all that apply here", json_schema_extra={**explained_here, **self_evident}
    )
    tags: Annotated[QueryTags, _TagList] = Field(default_factory=QueryTags)
    search: str = Field(
        "", max_length=2_000, description="words in title, text or tags", json_schema_extra=self_evident
    )
    related_to: RelatedTo | None = None
    include_versions: bool = Field(False, description="include the history", json_schema_extra=self_evident)
    include_inactive: bool = Field(False, description="include deleted entries", json_schema_extra=self_evident)
    order: QueryOrder = Field(QueryOrder.RELEVANCE, json_schema_extra=unlisted)
    cursor: str | None = Field(None, max_length=1_000, description="next_cursor of the previous answer")


class ConflictList(Retrieval, Paging):
    """List conflicts: nearest scope first, then newest first."""

    scope: MemoryScope | None = Field(None, description="only this scope; default: all that apply here")
    memory_id: EntityId | None = Field(None, description="only of this memory", json_schema_extra=unlisted)
    all: bool = Field(False, description="include resolved conflicts", json_schema_extra=self_evident)


class ConflictGet(Retrieval):
    """Get one conflict."""

    id: EntityId = Field(description="id of the conflict")
    scope: MemoryScope = Field(MemoryScope.PROJECT, description="scope of the id")


_RESOLUTIONS = {
    "kept_version_a": Resolution.KEEP_A,
    "kept_version_b": Resolution.KEEP_B,
    "keep_version_a": Resolution.KEEP_A,
    "keep_version_b": Resolution.KEEP_B,
    "kept_a": Resolution.KEEP_A,
    "kept_b": Resolution.KEEP_B,
    "merged": Resolution.MERGE,
    "kept_both": Resolution.BOTH,
    "keep_both": Resolution.BOTH,
}


class ConflictSettle(ConflictResolve):
    """Resolve a conflict between two versions of a memory."""

    resolution: Annotated[Resolution, _synonyms(_RESOLUTIONS)] = Field(
        description="a is the earlier version; both: it becomes a new memory"
    )
