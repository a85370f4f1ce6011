"""Show events in timelines, and read a store as of a past position."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from typing import Any

from memoryhub.core import clock
from memoryhub.core.backends.selected import views
from memoryhub.core.errors import NotFound
from memoryhub.core.log import head, view_at
from memoryhub.core.log.quarantine import quarantine_marks
from memoryhub.core.models import RawEvent
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import unindexed
from memoryhub.core.stores.store import StoreId, current_store, use_store
from memoryhub.core.text import first_line


@contextmanager
def as_of(moment: int | datetime) -> Iterator[int]:
    """Make the current store a view of itself at a position or time; yield the position.

    Raises:
        NotFound: the log does not reach that position.
        Locked: events were erased repeatedly while the view was built.
    """
    position, store = position_at(moment), viewed_store()
    with use_store(view_at(position)):
        views.forbid_writes()
        token = _viewed.set(store)
        try:
            yield position
        finally:
            _viewed.reset(token)


_viewed: ContextVar[StoreId | None] = ContextVar("viewed_store", default=None)


def viewed_store() -> StoreId:
    """Return the current store, or the store that the current view was built from."""
    return _viewed.get() or current_store()


def position_at(moment: int | datetime) -> int:
    if isinstance(moment, datetime):
        return _position_at_time(clock.to_text(moment))
    last, _ = head()
    if not 0 <= moment <= last:
        raise NotFound(f"there is no position {moment}; the log ends at #{last}", head=last)
    return moment


# SQLite would walk along the positions from the first
_ENDS = (
    "SELECT (SELECT max(position) FROM raw_events WHERE occurred_at <= %s), "
    f"(SELECT min({unindexed('position')}) FROM raw_events WHERE occurred_at > %s)"
)
# The position that divides events up to a time from later ones with the fewest on the wrong side, among those that a
# clock which was set back or ahead has put there. Times after the present are wrong, and count for neither side.
_DIVIDING = (
    "SELECT position, balance FROM (SELECT position, sum(CASE WHEN occurred_at <= %s THEN 1 WHEN occurred_at <= %s "
    "THEN -1 ELSE 0 END) OVER (ORDER BY position) AS balance FROM raw_events WHERE position BETWEEN %s AND %s) AS e "
    "ORDER BY balance DESC, position DESC LIMIT 1"
)


def _position_at_time(moment: str) -> int:
    last, later = rows.fetch(_ENDS, [moment, moment])[0]
    if last is None or later is None or later > last:
        return last or 0
    position, balance = rows.fetch(_DIVIDING, [moment, clock.to_text(clock.now()), later, last])[0]
    return int(position if balance >= 0 else later - 1)


# Payload fields that describe what an event is about, the best first.
_TITLE_FIELDS = (
    "title purpose content message command path tool subject phase description summary outcome reason detail turn_id "
    "sha name relation type"
).split()


def timeline_entry(event: RawEvent, title: str | None = None) -> dict[str, Any]:
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


def quarantine_notes(events: Sequence[RawEvent]) -> dict[int, str]:
    """Map the positions of quarantined events to the note shown in place of their title."""
    marks = quarantine_marks({id_ for event in events for id_ in (event.position, entity_of(event))})
    notes = {event.position: marks.get(entity_of(event)) or marks.get(event.position) for event in events}
    return {position: f"({mark})" for position, mark in notes.items() if mark}


def entity_of(event: RawEvent) -> int:
    """Return the id of the entity that the event is about, or the event's own position."""
    return entity_of_stream(event.stream_id, event.position)


def entity_of_stream(stream: str, position: int) -> int:
    """Return the id of a stream's entity, or the position of its event if it has none."""
    _, _, tail = stream.partition(":")
    return int(tail) if tail.isdigit() else position


def main_text(payload: Mapping[str, Any]) -> str:
    texts = (payload.get(name) for name in _TITLE_FIELDS)
    return first_line(next((text for text in texts if text and isinstance(text, str)), ""))
