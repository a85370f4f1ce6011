"""An event as one entry of a chronology: when, what, about what, by whom."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from typing import Any

from memoryhub.core import clock
from memoryhub.core.errors import NotFound
from memoryhub.core.log import head, view_at
from memoryhub.core.log.quarantine import quarantine_marks
from memoryhub.core.models import RawEvent
from memoryhub.core.stores import rows
from memoryhub.core.stores.store import StoreId, current_store, use_store
from memoryhub.core.text import first_line


@contextmanager
def as_of(moment: int | datetime) -> Iterator[int]:
    """Make the current store what it was at a position, or at a time, inside the block; yield the position.

    Raises:
        NotFound: the log does not reach that position.
        Locked: events were erased time and again while the view was made.
    """
    position, store = position_at(moment), viewed_store()
    with use_store(view_at(position)):
        rows.execute("PRAGMA query_only=ON")
        token = _viewed.set(store)
        try:
            yield position
        finally:
            _viewed.reset(token)


_viewed: ContextVar[StoreId | None] = ContextVar("viewed_store", default=None)


def viewed_store() -> StoreId:
    """Return the store that is asked, now or in the past: the current one, or the one that the current view is of."""
    return _viewed.get() or current_store()


def position_at(moment: int | datetime) -> int:
    """Return a position as it is, or that of the last event at or before a time; 0 before the first event.

    Raises:
        NotFound: the log does not reach that position.
    """
    if isinstance(moment, datetime):
        found = rows.fetch("SELECT max(position) FROM raw_events WHERE occurred_at <= %s", [clock.to_text(moment)])
        return found[0][0] or 0
    last, _ = head()
    if not 0 <= moment <= last:
        raise NotFound(f"there is no position {moment} here; the log ends at #{last}", head=last)
    return moment


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
        "title": title or main_text(json.loads(event.payload_json or "{}")),
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


def main_text(payload: Mapping[str, Any]) -> str:
    """Return the first line of what a payload says that its event was about."""
    text = next((payload[name] for name in _TELLING if payload.get(name)), "")
    return first_line(text)
