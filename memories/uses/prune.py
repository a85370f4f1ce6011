"""Forgetting how often memories were used that were deleted long ago: nobody is ranked or shown by it any more."""

from __future__ import annotations

import json
import time
from datetime import timedelta

from memories.events import USE
from memoryhub.core import clock, log, rows
from memoryhub.core.dialect import IDS
from memoryhub.core.event_types import Retention, define_event
from memoryhub.core.projection import Event, projects
from memoryhub.core.rollback import NOTHING_DEPENDS
from memoryhub.core.schemas import Payload

AFTER = timedelta(days=30)
"""So long after a memory was deleted its statistics stay, lest it is restored."""
_AT_ONCE = 500
_DELETED = (
    "SELECT u.memory_id FROM memories_memoryuse u JOIN memories_memory m ON m.id = u.memory_id "
    "WHERE m.deleted_at < %s ORDER BY u.memory_id LIMIT %s"
)


class UsesPruned(Payload):
    """What became of these memories is forgotten."""

    memory_ids: list[int]


USES_PRUNED = define_event(
    "memories.uses_pruned",
    UsesPruned,
    label="Memories uses pruned",
    group=USE,
    retention=Retention.KEPT,
    rollback=NOTHING_DEPENDS,
    changes_stream=False,
)


def prune_uses(*, until: float) -> int:
    """Forget the use of memories of the current store that were deleted a month ago; return how many there were.

    Args:
        until: when to leave the rest for the next time, on the monotonic clock; some is done in any case.
    """
    total = 0
    while (count := _prune_some()) and time.monotonic() < until:
        total += count
    return total + count


def _prune_some() -> int:
    with log.transaction():
        before = rows.time_value(clock.now() - AFTER)
        ids = [row[0] for row in rows.fetch(_DELETED, [before, _AT_ONCE])]
        if ids:
            log.append(log.prepare(USES_PRUNED, UsesPruned(memory_ids=ids)), stream="uses")
    return len(ids)


@projects(USES_PRUNED)
def forget_uses(event: Event[UsesPruned]) -> None:
    """Drop the rows."""
    listed = [json.dumps(event.payload.memory_ids)]
    rows.execute(f"DELETE FROM memories_memorycitation WHERE memory_id IN {IDS}", listed)
    rows.execute(f"DELETE FROM memories_memoryuse WHERE memory_id IN {IDS}", listed)
