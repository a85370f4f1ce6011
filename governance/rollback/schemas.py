"""What callers send and get: the same for REST, the command line and the admin."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field, model_validator

from governance.models import RollbackAction
from memoryhub.core.events.rollback import Left, Step
from memoryhub.core.schemas import Command, EntityId, Moment, Paging, Position

SHOWN = 50
"""So many things of a group are shown; how many there are is told always."""

Name = Annotated[str, Field(max_length=200)]
Ids = Annotated[list[EntityId], Field(max_length=10_000)]


def _point(value: object) -> object:
    """Read a position, or a time, from what was written; one without a zone is UTC."""
    if isinstance(value, int | float | datetime):
        return value
    written = str(value).strip().removeprefix("#")
    if written.isascii() and written.isdecimal():
        return written
    try:
        return datetime.fromisoformat(written)
    except ValueError:
        raise ValueError("it is a position such as 412, or a time such as 2026-11-20T14:00") from None


Point = Annotated[Position | Moment, BeforeValidator(_point)]
"""A position of the log, or a time."""


class Include(StrEnum):
    """What a roll-back can reach beyond what the selection itself did."""

    CHANGED_SINCE = "changed_since"
    """Things that others have changed since; their changes go with it."""
    BUILT_ON = "built_on"
    """What others made from it: decisions, memories and commits."""
    INFLUENCED = "influenced"
    """What was written in sessions after a pack had told of it."""


class Selection(Command):
    """Which events; what is given must hold of each, and something must be given."""

    session_id: Name = Field("", description="of this session")
    actor: Name = Field("", description="by this client or person")
    source: Name = Field("", description="through this door: mcp, rest, hook, import, cli, admin …")
    since: Point | None = Field(None, description="from this time or position on")
    until: Point | None = Field(None, description="before this time, or up to this position")
    include_people: bool = Field(False, description="what people did at the admin too")

    @model_validator(mode="after")
    def _says_something(self) -> Selection:
        if not (self.session_id or self.actor or self.source or self.since is not None or self.until is not None):
            raise ValueError("give at least one of session_id, actor, source, since and until")
        return self


class RollbackPlan(Selection):
    """What to roll back, and how."""

    action: RollbackAction = Field(
        RollbackAction.QUARANTINE,
        description="quarantine sets aside what there is; undo takes changes back and sets the rest aside",
    )
    include: list[Include] = Field(default_factory=list, max_length=3, description="what else to reach")
    also: Ids = Field(default_factory=list, description="ids of derived things to reach too")
    leave: Ids = Field(default_factory=list, description="ids of things to leave as they are")


class RollbackMake(RollbackPlan):
    """Roll back what a preview has shown."""

    reason: str = Field("", max_length=1_000, description="why")
    confirm_token: str | None = Field(None, max_length=64, description="the preview's: what was seen is what is done")


class RollbackUndo(Command):
    """Undo a roll-back."""

    id: EntityId = Field(description="of the roll-back")
    reason: str = Field("", max_length=1_000, description="why")


class RollbackList(Paging):
    """List roll-backs, the latest first."""


class Thing(BaseModel):
    """One thing that the selection made or changed, or that was made from such."""

    id: int
    type: str = Field(
        description="memory, decision, message and so on; the first part of the event's type where it is nothing else"
    )
    title: str
    event: int = Field(description="the first event that makes it so")
    events: int = Field(1, description="how many of the selection's events it was")
    versions: list[int] = Field(default_factory=list, description="of a memory: those that the selection wrote")
    via: int | None = Field(None, description="of what was derived: from which thing")
    how: str = Field("", description="of what was derived: supersedes, cites, made from version 2 and so on")
    depth: int = Field(0, description="of what was derived: how many steps from what the selection did")
    changed_since: str = Field("", description="who changed it since, and where; empty where nobody did")
    quarantined: str = Field("", description="since when it is in quarantine, and why")


class Group(BaseModel):
    """Things that are alike."""

    name: str
    title: str
    count: int
    shown: list[Thing] = Field(description="the first of them")


class Trace(BaseModel):
    """What a selection did, and what came of it."""

    events: int = Field(description="how many were chosen")
    first: int | None = Field(description="the position of the first of them")
    last: int | None = Field(description="that of the last")
    sessions: list[str] = Field(description="the first of those in which it happened")
    direct: list[Group] = Field(description="what it did")
    derived: list[Group] = Field(description="what came of that")


class Preview(BaseModel):
    """What a roll-back would do; nothing was changed."""

    trace: Trace
    action: RollbackAction
    counts: dict[str, int] = Field(description="how many things each step would be done to")
    steps: list[Step] = Field(description="the first of them")
    left: list[Left] = Field(description="the first of what would be left as it is")
    left_count: int = Field(description="how much would be left as it is")
    confirm_token: str = Field(description="what roll back needs: it goes through only where it would do just this")


class RollbackView(BaseModel):
    """A roll-back, as every door shows it."""

    id: int
    action: str
    selection: dict[str, Any] = Field(description="what was chosen")
    counts: dict[str, int] = Field(description="to how many things each step was done")
    left: list[Left] = Field(description="what was left as it is, the first of it")
    left_count: int = Field(description="how much was left as it is")
    reason: str
    actor: str
    made_at: datetime
    undone_by: str = Field(description="who undid it; empty while it stands")
    undone_at: datetime | None
    undone_left: list[Left] = Field(description="what its undoing left as it is")
