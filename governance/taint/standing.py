"""How the things of a selection stand now, and who changed them since: a query for any number of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from governance.taint.selecting import listed
from memoryhub.core import rows

_CHANGING = (
    "event_type IN ('decision.marked', 'conflict.resolved') OR event_type LIKE 'memory.%%' AND event_type <> "
    "'memory.seen'"
)

_CHANGED = f"""
WITH s(stream, at) AS MATERIALIZED (SELECT key, value FROM json_each(%s)),
last(stream, position) AS MATERIALIZED (
    SELECT s.stream, max(e.position) FROM s JOIN raw_events e ON e.stream_id = s.stream AND e.position > s.at
        WHERE ({_CHANGING}) AND e.position NOT IN (SELECT value FROM json_each(%s)) GROUP BY s.stream
)
SELECT last.stream, e.actor, e.position FROM last JOIN raw_events e ON e.position = last.position
    WHERE e.position NOT IN (SELECT value FROM json_each(%s))
"""

_MEMORIES = """
WITH wanted(id, stream) AS MATERIALIZED (SELECT value, 'memory:' || value FROM json_each(%s)),
touched(id, position) AS MATERIALIZED (
    SELECT w.id, max(e.position) FROM wanted w JOIN raw_events e ON e.stream_id = w.stream
        WHERE e.event_type IN ('memory.deleted', 'memory.restored')
        AND e.position NOT IN (SELECT value FROM json_each(%s)) GROUP BY w.id
)
SELECT m.id, m.version, m.deleted_at IS NOT NULL, t.position FROM wanted w
    JOIN memories_memory m ON m.id = w.id LEFT JOIN touched t ON t.id = m.id
"""

_CLEAN = """
SELECT v.memory_id, max(v.version) FROM json_each(%s) s
    JOIN memories_memoryversion v ON v.memory_id = CAST(s.key AS INTEGER) AND v.id < s.value
    WHERE v.id NOT IN (SELECT value FROM json_each(%s)) GROUP BY v.memory_id
"""

_PLACED = "o.id <> m.id AND o.scope = m.scope AND (m.scope <> 'session' OR o.session_id = m.session_id)"
_NAMES = "id, scope, session_id, kind, title, topic_key"
_RIVALS = f"""
WITH m AS MATERIALIZED (SELECT {_NAMES} FROM memories_memory WHERE id IN (SELECT value FROM json_each(%s))),
o AS MATERIALIZED (
    SELECT {_NAMES} FROM memories_memory WHERE deleted_at IS NULL AND id NOT IN (SELECT value FROM json_each(%s))
        AND id NOT IN (SELECT id FROM quarantine)
),
found(id, rival) AS (
    SELECT m.id, o.id FROM m JOIN o ON o.topic_key = m.topic_key AND {_PLACED}
    UNION ALL SELECT m.id, o.id FROM m JOIN o ON o.title = m.title AND o.kind = m.kind AND {_PLACED}
        WHERE m.topic_key IS NULL AND o.topic_key IS NULL
)
SELECT id, min(rival) FROM found GROUP BY id
"""
"""Materialised, so that each way gets an index of its own."""

NEVER = 2**53
"""Behind every position."""


@dataclass(frozen=True, slots=True)
class MemoryState:
    """How a memory stands."""

    version: int
    deleted: bool
    last_touch: int
    """The last event that deleted or restored it; 0 where none did."""


def changed_since(since: Mapping[str, int], own: Iterable[int], void: Iterable[int] = ()) -> dict[str, str]:
    """Return who changed a stream last, and where, by stream: of those that others changed.

    Args:
        since: a position by stream; only what came behind it counts.
        own: positions of no others: where the last change is one of them, nobody changed it since.
        void: positions that are no changes at all.
    """
    found = rows.fetch(_CHANGED, [json.dumps(since), listed(void), listed(own)])
    return {stream: f"changed since by {actor} at #{position}" for stream, actor, position in found}


def memory_states(ids: Iterable[int], void: Iterable[int] = ()) -> dict[int, MemoryState]:
    """Return how memories stand, by id; what is ``void`` deleted and restored nothing."""
    found = rows.fetch(_MEMORIES, [listed(ids), listed(void)])
    return {each: MemoryState(version, bool(deleted), touch or 0) for each, version, deleted, touch in found}


def clean_versions(before: Mapping[int, int], tainted: Iterable[int]) -> dict[int, int]:
    """Return the last version of each memory that no tainted event wrote and that stands before a position."""
    return dict(rows.fetch(_CLEAN, [json.dumps(before), listed(tainted)]))


def rivals(ids: Iterable[int], going: Iterable[int]) -> dict[int, int]:
    """Return which memory has the topic or the title of each of the deleted ones, but for those that are ``going``."""
    return dict(rows.fetch(_RIVALS, [listed(ids), listed(going)]))
