"""Input and output of rechecks, shared by REST, MCP and the admin."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, Field

from memories.schemas.validity import AnchorNames
from memoryhub.core.kinds import kind_members
from memoryhub.core.schemas import Command, EntityId, IdempotencyKey, Moment, Paging, self_evident, unlisted


class Why(StrEnum):
    """Why something needs rechecking."""

    # A commit changed a file that it governs.
    TOUCHED = "touched"
    # A commit that implements it was reverted, or someone requested a recheck.
    REVERTED = "reverted"
    # valid_until has passed.
    EXPIRED = "expired"
    # review_after has passed.
    AGE = "age"
    # Its check failed.
    CHECK = "check"
    # The code that it is about is not as it was in the working tree.
    CHANGED = "changed"
    # There is no such code in the working tree.
    GONE = "gone"
    # It was learnt on a branch that was dropped without a merge.
    DROPPED = "dropped"


class StaleKind(StrEnum):
    """What can become stale: a decision, or a kind of memory."""

    DECISION = "decision"
    vars().update(kind_members())


class StaleList(Paging):
    """List what needs rechecking, longest waiting first."""

    id: EntityId | None = Field(None, description="only this one", json_schema_extra=unlisted)
    kind: StaleKind | None = Field(None, description="decision, or a kind of memory", json_schema_extra=self_evident)
    why: Why | None = Field(None, description="only for this reason")
    diff: bool = Field(False, description="with what has changed in the files")


class Affirm(Command):
    """Confirm that a memory or decision is still valid."""

    id: EntityId = Field(description="of the memory or decision", json_schema_extra=self_evident)
    reason: str = Field("", max_length=1_000, description="why it holds", json_schema_extra=self_evident)
    valid_until: Moment | None = Field(None, description="of a memory: its new end; default: removes an expired one")
    anchors: AnchorNames | None = Field(
        None, description="code that it is about now: src/a.py:10-24; default: as before"
    )
    idempotency_key: IdempotencyKey = None


class Retire(Command):
    """Retire a memory or decision that is no longer valid."""

    id: EntityId = Field(description="id of the memory or decision")
    reason: str = Field("", max_length=1_000, description="why it is no longer valid")


class RetireResult(BaseModel):
    """Result of retiring."""

    id: int
    kind: str
    title: str


class AffirmResult(BaseModel):
    """Result of affirming."""

    id: int
    kind: str
    title: str
    affirmed_at: datetime
    is_new: bool = True
    # Types of the secrets that were replaced before storing.
    redacted: list[str] = Field(default_factory=list)


class StaleView(BaseModel):
    """A memory or decision that needs rechecking."""

    id: int
    # "decision", or the kind of the memory.
    kind: str
    # A memory's type, or a decision's impact.
    type: str
    title: str
    # The first 2,000 characters.
    text: str
    # Time of the first reason.
    since: datetime
    # {"why": …, "since": …, "says": one sentence, "name": the file or branch of changed, gone and dropped}
    reasons: list[dict[str, Any]]
    # At most 50 files and folders; a commit that changes one makes it stale.
    governs: list[str]
    # The latest 5 commits that changed them: {"id", "sha", "subject", "author", "date", "files": [{"path",
    # "insertions", "deletions"}], "diff": text or null}; diff only if requested and the repository is available.
    commits: list[dict[str, Any]]
    commit_count: int
    # Changes of its files since it was learnt, by path; only if requested, and where they are known.
    diffs: dict[str, str] = Field(default_factory=dict)
    # When it was last written, revised or affirmed.
    looked_at: datetime
    # Who affirmed it last, or empty.
    affirmed_by: str
