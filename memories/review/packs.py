"""What context packs tell of memories that a person reviews: what is accepted, as it was accepted.

A pack reads a hundred memories and shows few of them, so they are read as plain rows of what it shows.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from memories.kinds import attribute_columns
from memories.models import MemoryScope, ReviewState
from memoryhub.core import rows
from memoryhub.core.kinds import DEFAULT_KIND, KINDS
from memoryhub.core.quarantine import OUTSIDE
from sessions_app.settings import project_settings


class Told(NamedTuple):
    """A memory as packs tell it."""

    id: int
    kind: str
    type: str
    scope: str
    title: str
    content: str
    priority: int | None
    updated_at: str
    """A time as the store keeps it, in whose order times come too."""


_SHOWN = "m.id, m.kind, m.type, m.scope, m.title, m.content, m.priority, m.updated_at || ''"
_LIVE = f"m.deleted_at IS NULL AND NOT (m.review = 'rejected') AND m.id {OUTSIDE}"
_MEMORIES = f"SELECT {_SHOWN} FROM memories_memory m WHERE {_LIVE}"
_HOLDING = (
    "SELECT m.id, v.created_at || '', e.payload_json FROM memories_memory m "
    "JOIN memories_memoryversion v ON v.memory_id = m.id AND v.version = m.accepted_version "
    "JOIN raw_events e ON e.position = v.id "
    "WHERE NOT (m.review = 'accepted') AND m.review = 'proposed' AND m.accepted_version IS NOT NULL "
    f"AND e.payload_json IS NOT NULL AND {_LIVE}"
)


def told(
    condition: str,
    parameters: Sequence[Any] = (),
    *,
    order: str = "m.id",
    most: int = -1,
    now: datetime | None = None,
) -> list[Told]:
    """Return live memories of the current store as packs tell them.

    What waits for a person is left out, and where a version of it was accepted before, it is told as it was then;
    unless the project has its packs tell everything.

    Args:
        condition: an SQL condition on ``m``, the memories, which it and its ``parameters`` pick.
        parameters: of the condition.
        order: by what, in SQL; those of which a later version waits come last.
        most: so many of those that are as they were accepted.
        now: leave out what has expired by then.
    """
    accepted_only = project_settings().packs_accepted_only
    wanted = [(condition, list(parameters))]
    if accepted_only:
        wanted.append(("m.review = 'accepted'", []))
    if now:
        wanted.append(("(m.valid_until IS NULL OR m.valid_until > %s)", [rows.time_value(now)]))
    values = [value for _, given in wanted for value in given]
    picked = " AND ".join(sql for sql, _ in wanted)
    present = rows.fetch(f"{_MEMORIES} AND {picked} ORDER BY {order} LIMIT %s", [*values, most])
    return [*map(Told._make, present), *(_holding(condition, parameters, now) if accepted_only else ())]


def tells(review: str) -> bool:
    """Whether packs may tell a memory of the current store as it is now, by how it stands."""
    return review == ReviewState.ACCEPTED or (
        review == ReviewState.PROPOSED and not project_settings().packs_accepted_only
    )


def _holding(condition: str, parameters: Sequence[Any], now: datetime | None) -> list[Told]:
    """Return those of which a later version waits, each as it was accepted, unless that has expired."""
    found = rows.fetch(f"{_HOLDING} AND {condition} ORDER BY m.id DESC", [*parameters])
    as_they_were = (_as_it_was(memory_id, moment, json.loads(payload)) for memory_id, moment, payload in found)
    return [memory for memory, ends in as_they_were if not (now and ends and ends <= now)]


def _as_it_was(memory_id: int, moment: str, state: dict[str, Any]) -> tuple[Told, datetime | None]:
    """Return a memory as an event wrote it, and when that state expires.

    What is in the log was validated when it was written; to do so again would take most of a pack's time.
    """
    kind = state.get("kind", DEFAULT_KIND)
    own = attribute_columns(kind, state.get("attributes", {}))
    memory = Told(
        id=memory_id,
        kind=kind,
        type=state.get("type") or KINDS[kind].default_type,
        scope=state.get("scope", MemoryScope.PROJECT),
        title=state["title"],
        content=state["content"],
        priority=own["priority"],
        updated_at=moment,
    )
    return memory, own["valid_until"]
