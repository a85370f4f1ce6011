"""Reviewing memories: what callers send and get."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from memories.events import Verdict
from memories.models import MemoryKind, MemoryScope, ReviewState
from memories.schemas import Content, MemoryUpdate, MemoryView
from memoryhub.core.schemas import Command, EntityId, IdempotencyKey, Paging, Version, self_evident
from memoryhub.core.search.retrieval import Retrieval


class ReviewTouch(Command):
    """Something that a person does to a memory that she has looked at."""

    id: EntityId = Field(description="of the memory", json_schema_extra=self_evident)
    scope: MemoryScope = Field(MemoryScope.PROJECT, description="where it is", json_schema_extra=self_evident)
    base_version: Version | None = Field(None, description="the version that you looked at; another one is refused")
    reason: str = Field("", max_length=1_000, description="why", json_schema_extra=self_evident)
    idempotency_key: IdempotencyKey = None


class ReviewVerdict(ReviewTouch):
    """Accept or reject a memory."""

    verdict: Literal[Verdict.ACCEPTED, Verdict.REJECTED] = Field(description="accepted, or rejected")


class ReviewMerge(ReviewTouch):
    """Let another memory take over the text of one that waits."""

    into: EntityId = Field(description="the memory that takes it over")
    into_version: Version | None = Field(None, description="the version of it that you looked at")
    content: Content | None = Field(None, description="the merged text; default: that of the one that waits")


class ReviewEdit(MemoryUpdate):
    """Change a memory that waits, and accept it so."""


class ReviewResult(BaseModel):
    """How a memory stands after a verdict."""

    id: int
    version: int
    title: str
    scope: MemoryScope
    verdict: Verdict
    review: ReviewState
    review_reason: str
    merged_into: int | None = None
    redacted: list[str] = Field(
        default_factory=list, description="types of the secrets that were replaced before anything was kept"
    )


class ReviewOutcome(BaseModel):
    """What became of one of many verdicts."""

    id: int
    result: ReviewResult | None = None
    refused: str = Field("", description="why it was refused; empty where it was not")


class ReviewList(Retrieval, Paging):
    """List what waits for a person, what has waited longest first."""

    review: ReviewState = Field(ReviewState.PROPOSED, description="proposed, or rejected")
    scope: MemoryScope = Field(MemoryScope.PROJECT, description="where they are", json_schema_extra=self_evident)
    kind: MemoryKind | None = Field(None, description="only this kind", json_schema_extra=self_evident)
    type: str | None = Field(None, max_length=64, description="only this type", json_schema_extra=self_evident)
    session_id: str | None = Field(None, max_length=200, description="only of this session")
    actor: str | None = Field(None, max_length=200, description="only what this agent wrote last")
    source: str | None = Field(None, max_length=32, description="only what came through this door last")


class ReviewItem(MemoryView):
    """A memory that waits, with who proposed it and what it changes."""

    event: int = Field(description="that wrote the version which waits")
    actor: str
    door: str
    proposed_in: str = Field(description="the session that it was written in")
    proposed_at: str
    change_reason: str
    diff: str = Field(description="what changed since the version that holds; empty where none does")
