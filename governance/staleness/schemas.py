"""What callers send and get: the same at REST, MCP and the admin."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, Field

from memoryhub.core.kinds.builtin import kind_members
from memoryhub.core.schemas import Command, EntityId, IdempotencyKey, Moment, Paging, self_evident, unlisted


class Why(StrEnum):
    """Why something should be looked at again."""

    TOUCHED = "touched"
    """A commit touched a file that it governs."""
    REVERTED = "reverted"
    """A commit that carried it out was taken back, or someone asked for another look."""
    EXPIRED = "expired"
    """Its ``valid_until`` has passed."""
    AGE = "age"
    """Its ``review_after`` has passed."""


class StaleKind(StrEnum):
    """What can become stale: a decision, or a memory of a kind."""

    DECISION = "decision"
    vars().update(kind_members())


class StaleList(Paging):
    """List what should be looked at again, what has waited longest first."""

    id: EntityId | None = Field(None, description="only this one", json_schema_extra=unlisted)
    kind: StaleKind | None = Field(None, description="decision, or a kind of memory", json_schema_extra=self_evident)
    why: Why | None = Field(None, description="only for this reason")
    diff: bool = Field(False, description="with what the commits changed in the governed files")


class Affirm(Command):
    """Say of a memory or a decision that it was looked at again and holds."""

    id: EntityId = Field(description="of the memory or decision", json_schema_extra=self_evident)
    reason: str = Field("", max_length=1_000, description="why it holds", json_schema_extra=self_evident)
    valid_until: Moment | None = Field(
        None, description="of knowledge: its new end; default: one that has passed is taken away"
    )
    idempotency_key: IdempotencyKey = None


class Retire(Command):
    """Say of a memory or a decision that it was looked at again and holds no longer."""

    id: EntityId = Field(description="of the memory or decision")
    reason: str = Field("", max_length=1_000, description="why it does not hold")


class RetireResult(BaseModel):
    """What was retired."""

    id: int
    kind: str
    title: str


class AffirmResult(BaseModel):
    """What was affirmed."""

    id: int
    kind: str
    title: str
    affirmed_at: datetime
    is_new: bool = True
    redacted: list[str] = Field(default_factory=list)
    """Types of the secrets that were replaced before anything was kept."""


class StaleView(BaseModel):
    """Something to look at again, as every door shows it."""

    id: int
    kind: str
    """``decision``, or the kind of the memory."""
    type: str
    """A memory's type, or a decision's impact."""
    title: str
    text: str
    """What it says, at most 2,000 characters of it."""
    since: datetime
    """When the first of the reasons came up."""
    reasons: list[dict[str, Any]]
    """``{"why": …, "since": …, "says": one sentence}``"""
    governs: list[str]
    """The files and folders by which commits make it stale; at most 50."""
    commits: list[dict[str, Any]]
    """The latest 5 that touched them: ``{"id", "sha", "subject", "author", "date", "files": [{"path", "insertions",
    "deletions"}], "diff": text or null}``; ``diff`` only where it was asked for and the repository is at hand."""
    commit_count: int
    looked_at: datetime
    """When it was written, revised or affirmed last."""
    affirmed_by: str
    """Who affirmed it last; empty where nobody has."""
