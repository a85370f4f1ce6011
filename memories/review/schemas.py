from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from memories.events import Verdict
from memories.models import MemoryKind, MemoryScope, ReviewState
from memories.schemas import Content, MemoryUpdate, MemoryView
from memoryhub.core.schemas import Command, EntityId, IdempotencyKey, Paging, Version, self_evident
from memoryhub.core.search import Retrieval


class ReviewTouch(Command):
    """Common fields of review actions."""

    id: EntityId = Field(description="of the memory", json_schema_extra=self_evident)
    scope: MemoryScope = Field(MemoryScope.PROJECT, description="where it is", json_schema_extra=self_evident)
    base_version: Version | None = Field(
        None, description="the version you reviewed; refused if it is not the current one"
    )
    reason: str = Field("", max_length=1_000, description="why", json_schema_extra=self_evident)
    idempotency_key: IdempotencyKey = None


class ReviewVerdict(ReviewTouch):
    """Accept or reject a memory."""

    verdict: Literal[Verdict.ACCEPTED, Verdict.REJECTED] = Field(description="accepted, or rejected")


class ReviewMerge(ReviewTouch):
    """Merge a proposed memory into another one."""

    into: EntityId = Field(description="the memory to merge into")
    into_version: Version | None = Field(None, description="the version of it that you reviewed")
    content: Content | None = Field(None, description="the merged text; default: that of the proposed memory")


class ReviewEdit(MemoryUpdate):
    """Edit a proposed memory and accept it."""


class ReviewResult(BaseModel):
    """A memory after a verdict."""

    id: int
    version: int
    title: str
    scope: MemoryScope
    verdict: Verdict
    review: ReviewState
    review_reason: str
    merged_into: int | None = None
    redacted: list[str] = Field(
        default_factory=list, description="types of the secrets that were redacted before storing"
    )


class ReviewOutcome(BaseModel):
    """Result of one verdict in a batch."""

    id: int
    result: ReviewResult | None = None
    refused: str = Field("", description="why it was refused; empty on success")


class ReviewList(Retrieval, Paging):
    """List proposed or rejected memories, oldest first."""

    review: ReviewState = Field(ReviewState.PROPOSED, description="proposed, or rejected")
    scope: MemoryScope = Field(MemoryScope.PROJECT, description="where they are", json_schema_extra=self_evident)
    kind: MemoryKind | None = Field(None, description="only this kind", json_schema_extra=self_evident)
    type: str | None = Field(None, max_length=64, description="only this type", json_schema_extra=self_evident)
    session_id: str | None = Field(None, max_length=200, description="only of this session")
    actor: str | None = Field(None, max_length=200, description="only what this agent wrote last")
    source: str | None = Field(
        None, max_length=32, description="only last written through this interface (mcp, rest, …)"
    )


class ReviewItem(MemoryView):
    """A proposed memory, with its author and what it changes."""

    event: int = Field(description="that wrote the proposed version")
    actor: str
    door: str
    proposed_in: str = Field(description="the session that it was written in")
    proposed_at: str
    change_reason: str
    diff: str = Field(description="changes since the accepted version; empty if there is none")
