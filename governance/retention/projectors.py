"""What is so, after what happened in retention."""

from __future__ import annotations

import json

from governance.models import Hold, RetentionRun
from governance.retention.events import (
    HOLD_LIFTED,
    HOLD_PLACED,
    RETENTION_BEGAN,
    RETENTION_RAN,
    HoldLifted,
    HoldPlaced,
    RetentionBegan,
    RetentionRan,
)
from memoryhub.core import clock, rows
from memoryhub.core.dialect import IDS
from memoryhub.core.errors import Forbidden
from memoryhub.core.log import PAYLOAD_ERASED, PayloadErased
from memoryhub.core.projection import Event, projects


@projects(HOLD_PLACED)
def place(event: Event[HoldPlaced]) -> None:
    """Add the hold, in force."""
    rows.insert(
        Hold,
        id=event.position,
        stream_id=event.payload.stream_id,
        reason=event.payload.reason,
        placed_by=event.actor,
        placed_at=event.occurred_at,
    )


@projects(HOLD_LIFTED)
def lift(event: Event[HoldLifted]) -> None:
    """Note that it is no longer in force, by whom and why."""
    rows.update(
        Hold,
        event.payload.hold_id,
        lifted_by=event.actor,
        lifted_at=event.occurred_at,
        lift_reason=event.payload.reason,
    )


_HELD = (
    "SELECT h.id, h.stream_id, h.reason FROM governance_hold h WHERE h.lifted_at IS NULL AND (h.stream_id = '*' OR "
    f"h.stream_id IN (SELECT e.stream_id FROM raw_events e WHERE e.position IN {IDS} "
    f"UNION SELECT 'session:' || e.session_id FROM raw_events e WHERE e.position IN {IDS})) "
    "ORDER BY h.id LIMIT 1"
)


@projects(PAYLOAD_ERASED)
def refuse_held(event: Event[PayloadErased]) -> None:
    """Let nothing be erased that is held, whoever asks: what is refused here undoes the whole erasure.

    Raises:
        Forbidden: a hold is in force; the sentence names it. No log has such an erasure, so no rebuild meets one.
    """
    listed = json.dumps(event.payload.positions)
    for number, stream, reason in rows.fetch(_HELD, [listed, listed]):
        raise Forbidden(
            f"hold #{number} on {stream} keeps it ({reason}); nothing was erased; lift the hold first", hold=number
        )


@projects(RETENTION_BEGAN)
def begin(event: Event[RetentionBegan]) -> None:
    """Add the run, with what it set out to take."""
    payload = event.payload
    rows.insert(
        RetentionRun,
        id=event.position,
        cutoff=clock.from_text(payload.cutoff),
        digest=payload.digest,
        events=payload.events,
        bytes=payload.bytes,
        report=payload.report,
        actor=event.actor,
        source=event.source,
        began_at=event.occurred_at,
    )


@projects(RETENTION_RAN)
def end(event: Event[RetentionRan]) -> None:
    """Say what went."""
    payload = event.payload
    rows.update(
        RetentionRun,
        payload.run_id,
        events=payload.events,
        bytes=payload.bytes,
        report=payload.report,
        ran_at=event.occurred_at,
    )
