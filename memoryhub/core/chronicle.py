"""An event as one entry of a chronology: when, what, about what, by whom."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from memoryhub.core.models import RawEvent
from memoryhub.core.quarantine import quarantine_marks

_TELLING = (
    "title purpose content message command path tool subject phase description summary outcome reason detail turn_id "
    "sha name relation"
).split()
"""Names of payload fields that say what an event was about, the most telling first."""


def chronicle(event: RawEvent, title: str | None = None) -> dict[str, Any]:
    """Return an event as an entry; ``title`` is what it was about, where the caller knows better than its payload."""
    return {
        "position": event.position,
        "type": event.event_type,
        "id": entity_of(event),
        "title": title or telling(json.loads(event.payload_json or "{}")),
        "occurred_at": event.occurred_at,
        "actor": event.actor,
        "source": event.source,
        "session_id": event.session_id,
        "turn_id": event.turn_id,
    }


def kept_quiet(events: Sequence[RawEvent]) -> dict[int, str]:
    """Return what to say instead of what the events were about, by position: of those whose thing is in quarantine."""
    marks = quarantine_marks({each for event in events for each in (event.position, entity_of(event))})
    said = {event.position: marks.get(entity_of(event)) or marks.get(event.position) for event in events}
    return {position: f"({mark})" for position, mark in said.items() if mark}


def entity_of(event: RawEvent) -> int:
    """Return the id of what the event is about; its own position, where that has no id."""
    _, _, tail = event.stream_id.partition(":")
    return int(tail) if tail.isdigit() else event.position


def telling(payload: Mapping[str, Any]) -> str:
    """Return the first line of what a payload says that its event was about."""
    text = next((payload[name] for name in _TELLING if payload.get(name)), "")
    return str(text).strip().split("\n", 1)[0][:200]
