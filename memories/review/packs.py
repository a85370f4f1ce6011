"""What context packs tell of memories that a person reviews: what is accepted, as it was accepted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from memories.events import MemoryState
from memories.kinds import attribute_columns
from memories.models import Memory, MemoryQuerySet, ReviewState
from memoryhub.core import clock, rows
from sessions_app.settings import project_settings

_HOLDING = (
    "SELECT m.id, v.created_at, e.payload_json FROM memories_memory m "
    "JOIN memories_memoryversion v ON v.memory_id = m.id AND v.version = m.accepted_version "
    "JOIN raw_events e ON e.position = v.id "
    "WHERE NOT (m.review = 'accepted') AND m.review = 'proposed' AND m.accepted_version IS NOT NULL "
    "AND m.deleted_at IS NULL AND e.payload_json IS NOT NULL"
)


def told(
    found: MemoryQuerySet, *, order: Sequence[str] = (), most: int | None = None, now: datetime | None = None
) -> list[Memory]:
    """Return memories of the current store as packs tell them: for reading, not for saving.

    What waits for a person is left out, and where a version of it was accepted before, it is told as it was then;
    unless the project has its packs tell everything.

    Args:
        found: live memories.
        order: by what; those of which a later version waits come last.
        most: so many of those that are as they were accepted.
        now: leave out what has expired by then.
    """
    accepted_only = project_settings().packs_accepted_only
    present = found.filter(review=ReviewState.ACCEPTED) if accepted_only else found
    if now:
        present = present.exclude(valid_until__lte=now)
    earlier = [each for each in _holding(found) if not _is_expired(each, now)] if accepted_only else []
    return [*present.order_by(*order)[:most], *earlier]


def tells(memory: Memory) -> bool:
    """Whether packs may tell a memory of the current store as it is now."""
    return memory.review == ReviewState.ACCEPTED or (
        memory.review == ReviewState.PROPOSED and not project_settings().packs_accepted_only
    )


def _holding(found: MemoryQuerySet) -> list[Memory]:
    """Return those of which a later version waits, each as it was accepted."""
    earlier = {memory_id: (moment, payload) for memory_id, moment, payload in rows.fetch(_HOLDING)}
    if not earlier:
        return []
    memories = found.filter(id__in=list(earlier)).order_by("-id")
    return [_as_it_was(memory, *earlier[memory.id]) for memory in memories]


def _as_it_was(memory: Memory, moment: Any, payload_json: str) -> Memory:
    payload = json.loads(payload_json)
    state = MemoryState(**{name: value for name, value in payload.items() if name in MemoryState.model_fields})
    columns = {**state.columns(), **attribute_columns(state.kind, state.attributes)}
    for name, value in columns.items():
        setattr(memory, name, value)
    memory.updated_at = clock.from_text(rows.time_text(moment))
    return memory


def _is_expired(memory: Memory, now: datetime | None) -> bool:
    return now is not None and memory.valid_until is not None and memory.valid_until <= now
