"""Iterations: what callers send and get."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, Field

from memoryhub.core.schemas import Command, EntityId, Line, Paging
from sessions_app.models import IterationStatus


class IterationList(Paging):
    """List iterations, newest first."""

    status: IterationStatus | None = Field(None, description="only these")


class IterationStart(Command):
    """Begin an iteration; at most one is active."""

    command: Line = Field(min_length=1, max_length=64, description="feature, fix, audit, ship, spike …")
    description: str = Field("", max_length=5_000, description="what it is for")


class IterationAdvance(Command):
    """Complete a phase, begin the next, note what was made."""

    id: EntityId | None = Field(None, description="default: the active one")
    completed: Line = Field("", max_length=64, description="the phase that is done; default: the present one")
    phase: Line = Field("", max_length=64, description="the phase that begins")
    artifacts: list[Line] = Field(default_factory=list, max_length=100, description="paths or links of what was made")


class IterationComplete(Command):
    """Complete or abandon an iteration."""

    id: EntityId | None = Field(None, description="default: the active one")
    outcome: str = Field("", max_length=20_000, description="what came of it")
    abandon: bool = Field(False, description="it was given up")


class IterationGet(Command):
    """Get an iteration with its chronology."""

    id: EntityId | None = Field(None, description="default: the latest")
    events: int = Field(50, ge=0, le=500, description="so many of its events, the newest")


class IterationView(BaseModel):
    """An iteration as every door shows it."""

    id: int
    command: str
    description: str
    status: IterationStatus
    phase: str
    phases_completed: list[str]
    artifacts: list[str]
    session_id: str
    started_at: datetime
    ended_at: datetime | None
    outcome: str
