"""Turns: open, closed or incomplete, and kept open by what happens in them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from memoryhub.core import rows
from memoryhub.core.projection import Event, project_headers, projects
from sessions_app.events.turns import (
    TURN_BEGAN,
    TURN_ENDED,
    TURN_EXPIRED,
    TurnBegan,
    TurnEnded,
    TurnExpired,
)
from sessions_app.models import Turn, TurnStatus

_KEEP_OPEN = "SELECT id, ack_seconds FROM sessions_app_turn WHERE session_id = %s AND turn_id = %s AND status = 'open'"


@projects(TURN_BEGAN)
def begin(event: Event[TurnBegan]) -> None:
    """Add the turn, open."""
    payload = event.payload
    rows.insert(
        Turn,
        id=event.position,
        session_id=payload.session_id,
        turn_id=payload.turn_id,
        status=TurnStatus.OPEN,
        automatic=payload.automatic,
        ack_token_hash=payload.ack_token_hash,
        ack_seconds=payload.ack_seconds,
        expires_at=event.occurred_at + timedelta(seconds=payload.ack_seconds),
        began_at=event.occurred_at,
        actor=event.actor,
        event_count=0,
    )


@projects(TURN_ENDED)
def end(event: Event[TurnEnded]) -> None:
    """Close the turn."""
    _leave(event, TurnStatus.CLOSED, event.payload.summary)


@projects(TURN_EXPIRED)
def expire(event: Event[TurnExpired]) -> None:
    """Mark the turn incomplete."""
    _leave(event, TurnStatus.INCOMPLETE, "")


def _leave(event: Event[Any], status: TurnStatus, summary: str) -> None:
    rows.execute(
        "UPDATE sessions_app_turn SET status = %s, ended_at = %s, summary = %s WHERE session_id = %s AND turn_id = %s",
        [status, rows.time_value(event.occurred_at), summary, event.payload.session_id, event.payload.turn_id],
    )


@project_headers
def keep_open(event: Event[Any]) -> None:
    """Count what happens in an open turn, and let its time begin anew."""
    if not event.turn_id or event.type == TURN_BEGAN.name:
        return
    for turn, seconds in rows.fetch(_KEEP_OPEN, [event.session_id, event.turn_id]):
        rows.execute(
            "UPDATE sessions_app_turn SET event_count = event_count + 1, expires_at = %s WHERE id = %s",
            [rows.time_value(event.occurred_at + timedelta(seconds=seconds)), turn],
        )
