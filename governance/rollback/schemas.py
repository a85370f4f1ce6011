"""Input and output of roll-backs, shared by REST, the command line and the admin."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field, model_validator

from governance.models import RollbackAction
from memoryhub.core.events.rollback import Left, Step
from memoryhub.core.schemas import Command, EntityId, Moment, Paging, Position

# How many items of a group are shown; its count includes all.
SHOWN = 50

Name = Annotated[str, Field(max_length=200)]
Ids = Annotated[list[EntityId], Field(max_length=10_000)]


def _point(value: object) -> object:
    if isinstance(value, int | float | datetime):
        return value
    written = str(value).strip().removeprefix("#")
    if written.isascii() and written.isdecimal():
        return written
    try:
        return datetime.fromisoformat(written)
    except ValueError:
        raise ValueError("it must be a position such as 412, or a time such as 2026-11-20T14:00") from None


Point = Annotated[Position | Moment, BeforeValidator(_point)]


class Include(StrEnum):
    """What a roll-back can include beyond direct effects."""

    # Items that others have changed since; their changes are rolled back too.
    CHANGED_SINCE = "changed_since"
    # Decisions, memories and commits that others derived from it.
    BUILT_ON = "built_on"
    # Writes of sessions after a context pack had included it.
    INFLUENCED = "influenced"


class Selection(Command):
    """Selection of events; they must match all filters, and at least one is required."""

    session_id: Name = Field("", description="only of this session")
    actor: Name = Field("", description="only by this client or person")
    source: Name = Field("", description="only from this source: mcp, rest, hook, import, cli, admin …")
    since: Point | None = Field(None, description="from this time or position")
    until: Point | None = Field(None, description="before this time, or up to and including this position")
    include_people: bool = Field(False, description="include changes by people in the admin")

    @model_validator(mode="after")
    def _has_filter(self) -> Selection:
        if not (self.session_id or self.actor or self.source or self.since is not None or self.until is not None):
            raise ValueError("give at least one of session_id, actor, source, since and until")
        return self


class RollbackPlan(Selection):
    """What to roll back, and how."""

    action: RollbackAction = Field(
        RollbackAction.QUARANTINE, description="quarantine hides items; undo reverts changes and quarantines the rest"
    )
    include: list[Include] = Field(default_factory=list, max_length=3, description="what else to include")
    also: Ids = Field(default_factory=list, description="ids of downstream items to include")
    leave: Ids = Field(default_factory=list, description="ids of items to exclude")


class RollbackMake(RollbackPlan):
    """Roll back what a preview has shown."""

    reason: str = Field("", max_length=1_000, description="why")
    confirm_token: str | None = Field(
        None, max_length=64, description="from the preview; refused if the preview is outdated"
    )


class RollbackUndo(Command):
    """Undo a roll-back."""

    id: EntityId = Field(description="id of the roll-back")
    reason: str = Field("", max_length=1_000, description="why")


class RollbackList(Paging):
    """List roll-backs, newest first."""


class Thing(BaseModel):
    """An item that the selection wrote, or that was derived from one."""

    id: int
    type: str = Field(description="memory, decision, message …; otherwise the first part of the event type")
    title: str
    event: int = Field(description="the first event that selects it")
    events: int = Field(1, description="number of selected events")
    versions: list[int] = Field(default_factory=list, description="of a memory: versions that the selection wrote")
    via: int | None = Field(None, description="downstream: id of the item it was derived from")
    how: str = Field("", description="downstream: supersedes, cites, made from version 2 …")
    depth: int = Field(0, description="downstream: number of steps from the selection")
    changed_since: str = Field("", description="who changed it since, and from where; empty if nobody did")
    quarantined: str = Field("", description="since when and why it is in quarantine")


class Group(BaseModel):
    """Items of one kind."""

    name: str
    title: str
    count: int
    shown: list[Thing] = Field(description="the first items")


class Trace(BaseModel):
    """Direct and downstream effects of a selection."""

    events: int = Field(description="number of selected events")
    first: int | None = Field(description="position of the first event")
    last: int | None = Field(description="position of the last event")
    sessions: list[str] = Field(description="the first of their sessions")
    direct: list[Group] = Field(description="direct effects")
    derived: list[Group] = Field(description="downstream effects")


class Preview(BaseModel):
    """Preview of a roll-back; nothing was changed."""

    trace: Trace
    action: RollbackAction
    counts: dict[str, int] = Field(description="number of items by action")
    steps: list[Step] = Field(description="the first steps")
    left: list[Left] = Field(description="the first items that would stay unchanged")
    left_count: int = Field(description="number of items that would stay unchanged")
    confirm_token: str = Field(description="token for doing exactly this")


class RollbackView(BaseModel):
    """A roll-back."""

    id: int
    action: str
    selection: dict[str, Any] = Field(description="the filters")
    counts: dict[str, int] = Field(description="number of items by action")
    left: list[Left] = Field(description="the first items that stayed unchanged")
    left_count: int = Field(description="number of items that stayed unchanged")
    reason: str
    actor: str
    made_at: datetime
    undone_by: str = Field(description="who undid it; empty if not undone")
    undone_at: datetime | None
    undone_left: list[Left] = Field(description="items that the undo left unchanged")
