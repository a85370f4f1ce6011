"""Events that took each other back: those of roll-backs that were undone, and of their undoing."""

from __future__ import annotations

import json
from collections.abc import Iterator

from governance.events import ROLLBACK_MADE, ROLLBACK_UNDONE
from memoryhub.core.events.rollback import Step, count_events
from memoryhub.core.stores import rows

_EVENTS = (
    "SELECT position, event_type, payload_json FROM raw_events "
    "WHERE event_type IN (%s, %s) AND payload_json IS NOT NULL ORDER BY position"
)


def void_positions() -> frozenset[int]:
    """Return the positions of what undone roll-backs did and of what undid it: nothing is changed by both."""
    return frozenset(_void())


def _void() -> Iterator[int]:
    made: dict[int, range] = {}
    for position, event_type, payload_json in rows.fetch(_EVENTS, [ROLLBACK_MADE.name, ROLLBACK_UNDONE.name]):
        payload = json.loads(payload_json)
        steps = [Step.model_validate(each) for each in payload.get("steps", [])]
        own = range(position, position + 1 + count_events(steps))
        if event_type == ROLLBACK_MADE.name:
            made[position] = own
        else:
            yield from own
            yield from made.get(payload["rollback_id"], ())
