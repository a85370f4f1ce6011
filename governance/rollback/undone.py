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


# Positions of roll-backs that were undone, of their steps, and of the undo: together they change nothing
def void_positions() -> frozenset[int]:
    return frozenset(_void())


def _void() -> Iterator[int]:
    made: dict[int, range] = {}
    for position, event_type, payload_json in rows.fetch(_EVENTS, [ROLLBACK_MADE.name, ROLLBACK_UNDONE.name]):
        payload = json.loads(payload_json)
        steps = [Step.model_validate(step) for step in payload.get("steps", [])]
        own = range(position, position + 1 + count_events(steps))
        if event_type == ROLLBACK_MADE.name:
            made[position] = own
        else:
            yield from own
            yield from made.get(payload["rollback_id"], ())
