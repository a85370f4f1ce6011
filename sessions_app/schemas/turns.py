"""Turns: what callers send and get."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, Field

from memoryhub.core.schemas import Command, IdempotencyKey, Identifier, Line, Paging
from sessions_app.models import TurnStatus


class TurnBegin(Command):
    """Begin a turn; the answer has the ack_token that its events and its end must show."""

    session_id: Identifier | None = Field(None, description="default: this connection's session")
    turn_id: Identifier | None = Field(None, description="default: a new one")


class TurnCall(Command):
    """A call that must show the token of an open turn."""

    ack_token: str | None = Field(None, max_length=200, description="what turn_begin returned")
    session_id: Identifier | None = Field(None, description="checked against the token's, where given")
    turn_id: Identifier | None = Field(None, description="checked against the token's, where given")


class EventAppend(TurnCall):
    """Append an event to the open turn."""

    type: Line = Field(max_length=64, description="such as message.user, command.run, phase_completed")
    payload: dict[str, Any] = Field(description="what happened; an error names the fields of the type")
    idempotency_key: IdempotencyKey = None


class TurnEnd(TurnCall):
    """End the open turn."""

    summary: str = Field("", max_length=20_000, description="what came of it")


class TurnList(Paging):
    """List turns, newest first."""

    session_id: Identifier | None = Field(None, description="only of this session")
    status: TurnStatus | None = Field(None, description="only these")


class TurnView(BaseModel):
    """A turn as every door shows it."""

    id: int
    session_id: str
    turn_id: str
    status: TurnStatus
    automatic: bool
    actor: str
    began_at: datetime
    ended_at: datetime | None
    expires_at: datetime
    event_count: int
    summary: str
