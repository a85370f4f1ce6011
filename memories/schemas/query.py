"""The cross-reference query, and the list of conflicts: what callers ask."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from memories.models import MemoryKind, MemoryScope, RelationType, Resolution
from memories.schemas.writing import ConflictResolve, Tags
from memoryhub.core.kinds.builtin import KINDS, kind_members
from memoryhub.core.schemas import Command, EntityId, Identifier, Paging, unlisted
from memoryhub.core.search.retrieval import Retrieval

DEFAULT_TOKENS = 1_500


class ContextPackRequest(Command):
    """What to know before going on: guidelines, decisions, facts, turns, conflicts, the last session's summary."""

    query: str = Field("", max_length=2_000, description="what the work is about; else what changed last")
    max_tokens: int = Field(DEFAULT_TOKENS, ge=200, le=20_000, description="budget of the whole answer")
    since: EntityId | None = Field(None, description="number of a pack you have: only what changed since")
    session_id: Identifier | None = Field(None, description="default: the client's", json_schema_extra=unlisted)


class ContextReplay(Command):
    """Make a pack again, as it was sent."""

    id: EntityId = Field(description="of the pack")


_PLURALS = {
    **{kind.plural.lower(): kind.name for kind in KINDS.values()},
    "memories": "memory",
    "projects": "project",
}


def _singular(value: Any) -> Any:
    return _PLURALS.get(value.strip().lower(), value) if isinstance(value, str) else value


def _as_scope(value: Any) -> Any:
    return {"type": value} if isinstance(value, str) else value


def _as_tags(value: Any) -> Any:
    return {"require": value} if isinstance(value, list) else value


def _as_text(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


class QueryScope(Command):
    """Where a query looks."""

    type: MemoryScope = Field(description="the nearest scope asked")
    id: str = Field("", max_length=200, description="of the session; of the project or org: the one that holds here")
    inherit: bool = Field(True, description="ask the wider scopes too")


class QueryTags(Command):
    """What tags a result has."""

    include: Tags = Field(default_factory=list, description="any of these")
    require: Tags = Field(default_factory=list, description="all of these")
    exclude: Tags = Field(default_factory=list, description="none of these")


class RelatedType(StrEnum):
    """What a result can be related to."""

    MEMORY = "memory"
    vars().update(kind_members())
    PROJECT = "project"
    DECISION = "decision"
    COMMIT = "commit"
    SESSION = "session"


class RelatedTo(Command):
    """What a result is directly related to, in either direction."""

    type: Annotated[RelatedType, BeforeValidator(_singular)]
    id: Annotated[str, BeforeValidator(_as_text)] = Field(
        min_length=1, max_length=300, description="an id such as 412 or global#12, or the title of a memory"
    )
    relation: RelationType | None = None


class QueryOrder(StrEnum):
    """How results are ordered."""

    RELEVANCE = "relevance"
    PRIORITY = "priority"
    NAME = "name"
    RECENT = "recent"


class MemoryQuery(Retrieval, Paging):
    """Ask across kinds, scopes, tags, text and relations at once; results are ranked."""

    types: list[Annotated[MemoryKind, BeforeValidator(_singular)]] = Field(
        default_factory=list, max_length=16, description="default: all"
    )
    type: str = Field("", max_length=64, description="only this type, such as security", json_schema_extra=unlisted)
    scope: Annotated[QueryScope | None, BeforeValidator(_as_scope)] = Field(
        None, description="default: all that hold here"
    )
    tags: Annotated[QueryTags, BeforeValidator(_as_tags)] = Field(default_factory=QueryTags)
    search: str = Field("", max_length=2_000, description="words in title, text or tags")
    related_to: RelatedTo | None = None
    include_versions: bool = Field(False, description="with the history")
    include_inactive: bool = Field(False, description="show deleted ones too")
    order: QueryOrder = Field(QueryOrder.RELEVANCE, json_schema_extra=unlisted)
    cursor: str | None = Field(None, max_length=1_000, description="next_cursor of the answer before")


class ConflictList(Retrieval, Paging):
    """List conflicts, those of the nearest scope first, and of each the newest first."""

    scope: MemoryScope | None = Field(None, description="only this scope; default: all that hold here")
    memory_id: EntityId | None = Field(None, description="only of this memory", json_schema_extra=unlisted)
    all: bool = Field(False, description="settled ones too")


class ConflictGet(Retrieval):
    """Get one conflict."""

    id: EntityId = Field(description="of the conflict")
    scope: MemoryScope = Field(MemoryScope.PROJECT, description="where it is")


_OLDER = {
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


def _resolution(value: Any) -> Any:
    return _OLDER.get(value.strip().lower(), value) if isinstance(value, str) else value


class ConflictSettle(ConflictResolve):
    """Settle a conflict between two versions of a memory."""

    resolution: Annotated[Resolution, BeforeValidator(_resolution)] = Field(
        description="a is the earlier version; both makes it a memory of its own"
    )
