"""Current state and history of memories and streams; one query for any number of them."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from governance.rollback.selectors import listed
from memories.events import (
    MEMORY_DELETED,
    MEMORY_RESTORED,
    MEMORY_REVIEWED,
    MEMORY_REVISED,
    MEMORY_WRITTEN,
    MemoryState,
    ReviewStatus,
)
from memories.projectors.memories import ACCEPTED
from memoryhub.config.retention_rules import EndedWith
from memoryhub.core.events.event_types import types_that_change_streams
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS, TEXTS, elements, int_elements, int_entries, json_int, json_text
from sessions_app.events import SESSION_ENDED

V = TypeVar("V")

# The last change of each stream after a position; a stream whose last change is our own is unchanged
_CHANGED = f"""
WITH s(stream, at) AS MATERIALIZED (SELECT key, value FROM {int_entries()} AS given),
last(stream, position) AS MATERIALIZED (
    SELECT s.stream, max(e.position) FROM s JOIN raw_events e ON e.stream_id = s.stream AND e.position > s.at
        WHERE e.event_type IN {TEXTS}
        AND e.position NOT IN {IDS} GROUP BY s.stream
)
SELECT last.stream, e.actor, e.position FROM last JOIN raw_events e ON e.position = last.position
    WHERE e.position NOT IN {IDS}
"""

_MEMORIES = f"""
SELECT id, version, deleted_at IS NOT NULL, session_id, kind, scope, title, topic_key FROM memories_memory
    WHERE id IN {IDS}
"""

# A value from each event of some types, by memory
_HISTORY = f"""
WITH wanted(id, stream) AS MATERIALIZED (SELECT value, 'memory:' || value FROM {int_elements()} AS given)
SELECT w.id, e.position, e.event_type, {{}} FROM wanted w JOIN raw_events e ON e.stream_id = w.stream
    WHERE e.event_type IN {TEXTS} ORDER BY e.position
"""
_NO_VALUE = "NULL"
_STANDING = f"coalesce({json_text('e.payload_json', 'after')}, {json_text('e.payload_json', 'review')})"

# Entries of scratch sessions that were live when the session ended, and whether the end deleted them
_ENDED = f"""
WITH ended(position, session, payload) AS MATERIALIZED (
    SELECT position, substr(stream_id, 9), payload_json FROM raw_events
        WHERE position IN {IDS} AND {json_text("payload_json", "entries")} IS NOT NULL
)
SELECT m.id, e.position, {json_text("e.payload", "entries")} = '{EndedWith.DISCARD}'
        AND m.id NOT IN (SELECT value FROM {int_elements("e.payload", "kept")} AS kept)
    FROM ended e JOIN sessions_app_session s ON s.session_id = e.session
    JOIN memories_memory m ON m.session_id = s.session_id AND m.id > s.id AND m.id < e.position
    WHERE coalesce((
        SELECT t.event_type FROM raw_events t WHERE t.stream_id = 'memory:' || m.id AND t.position < e.position
            AND t.event_type IN ('{MEMORY_DELETED.name}', '{MEMORY_RESTORED.name}') ORDER BY t.position DESC LIMIT 1
    ), '') <> '{MEMORY_DELETED.name}' ORDER BY e.position, m.id
"""

_ENDS_OF_SESSIONS = f"""
SELECT position FROM raw_events WHERE event_type = '{SESSION_ENDED.name}' AND stream_id IN (
    SELECT DISTINCT 'session:' || session_id FROM memories_memory WHERE id IN {IDS}
)
"""

# The last version before a position that no rolled-back event wrote
_CLEAN = f"""
SELECT v.memory_id, max(v.version) FROM {int_entries()} s
    JOIN memories_memoryversion v ON v.memory_id = CAST(s.key AS INTEGER) AND v.id < s.value
    WHERE v.id NOT IN {IDS} GROUP BY v.memory_id
"""

_SAME_PLACE = "o.id <> m.id AND o.scope = m.scope AND (m.scope <> 'session' OR o.session_id = m.session_id)"
_NAMES = ("id", "scope", "session_id", "kind", "title", "topic_key")
# Live memories that have a wanted topic, or a wanted title where there is no topic. MATERIALIZED makes both lookups by
# index.
_RIVALS = f"""
WITH m({", ".join(_NAMES)}) AS MATERIALIZED (
    SELECT {", ".join((json_int if name == "id" else json_text)("value", name) for name in _NAMES)}
        FROM {elements()} AS wanted
),
o AS MATERIALIZED (
    SELECT {", ".join(_NAMES)} FROM memories_memory WHERE deleted_at IS NULL
        AND id NOT IN {IDS} AND id NOT IN (SELECT id FROM quarantine)
),
found(id, rival) AS (
    SELECT m.id, o.id FROM m JOIN o ON o.topic_key = m.topic_key AND {_SAME_PLACE}
    UNION ALL SELECT m.id, o.id FROM m JOIN o ON o.title = m.title AND o.kind = m.kind AND {_SAME_PLACE}
        WHERE m.topic_key IS NULL AND o.topic_key IS NULL
)
SELECT id, min(rival) FROM found GROUP BY id
"""

# Greater than every position.
NEVER = 2**53


@dataclass(slots=True)
class History(Generic[V]):
    # Position and value
    given: list[tuple[int, V]] = field(default_factory=list)

    def before(self, limit: int, ignored: Collection[int], default: V) -> V:
        kept = [value for position, value in self.given if position < limit and position not in ignored]
        return kept[-1] if kept else default


@dataclass(frozen=True, slots=True)
class MemoryNow:
    id: int
    version: int
    deleted: bool
    session_id: str
    kind: str
    scope: str
    title: str
    topic_key: str | None
    deletions: History[bool]

    def named(self, state: MemoryState | None = None) -> dict[str, Any]:
        source = state or self
        return {
            "id": self.id,
            "session_id": self.session_id,
            **{name: getattr(source, name) for name in ("scope", "kind", "title", "topic_key")},
        }


def changed_since(since: Mapping[str, int], own: Iterable[int], void: Iterable[int] = ()) -> dict[str, str]:
    """Return a note on the last change by others, by stream; unchanged streams are left out.

    Args:
        since: a position by stream; only later events count.
        own: positions of the caller's own events.
        void: positions that don't count as changes.
    """
    parameters = [json.dumps(since), json.dumps(types_that_change_streams()), listed(void), listed(own)]
    found = rows.fetch(_CHANGED, parameters)
    return {stream: f"changed since by {actor} at #{position}" for stream, actor, position in found}


# Erased memories are left out
def memories_now(ids: Collection[int]) -> dict[int, MemoryNow]:
    deletions: dict[int, History[bool]] = {}
    changes = [
        (position, memory_id, name == MEMORY_DELETED.name)
        for memory_id, position, name, _ in _history(ids, _NO_VALUE, MEMORY_DELETED.name, MEMORY_RESTORED.name)
    ]
    ends = [position for (position,) in rows.fetch(_ENDS_OF_SESSIONS, [listed(ids)])]
    changes += [(position, memory_id, True) for memory_id, position in discarded_by(ends) if memory_id in ids]
    for position, memory_id, deleted in sorted(changes):
        deletions.setdefault(memory_id, History()).given.append((position, deleted))
    now = {}
    for memory_id, version, deleted, session, kind, scope, title, topic in rows.fetch(_MEMORIES, [listed(ids)]):
        history = deletions.get(memory_id, History())
        now[memory_id] = MemoryNow(memory_id, version, bool(deleted), session, kind, scope, title, topic, history)
    return now


# Memories that the ends of scratch sessions deleted, each with that event
def discarded_by(positions: Iterable[int]) -> list[tuple[int, int]]:
    return [
        (memory_id, position) for memory_id, position, deleted in rows.fetch(_ENDED, [listed(positions)]) if deleted
    ]


# Memories that the ends of scratch sessions moved to the project
def promoted_by(positions: Iterable[int]) -> set[int]:
    return {memory_id for memory_id, _, deleted in rows.fetch(_ENDED, [listed(positions)]) if not deleted}


def review_states_of(ids: Collection[int]) -> dict[int, History[ReviewStatus]]:
    names = (MEMORY_WRITTEN.name, MEMORY_REVISED.name, MEMORY_REVIEWED.name)
    found: dict[int, History[ReviewStatus]] = {memory_id: History() for memory_id in ids}
    for memory_id, position, _, standing in _history(ids, _STANDING, *names):
        given = ReviewStatus.model_validate_json(standing) if standing else ACCEPTED
        found[memory_id].given.append((position, given))
    return found


def _history(ids: Iterable[int], value: str, *types: str) -> list[tuple[int, int, str, Any]]:
    found = rows.fetch(_HISTORY.format(value), [listed(ids), json.dumps(types)])
    return [(memory_id, position, name, given) for memory_id, position, name, given in found]


def clean_versions(before: Mapping[int, int], rolled_back: Iterable[int]) -> dict[int, int]:
    return dict(rows.fetch(_CLEAN, [json.dumps(before), listed(rolled_back)]))


def rivals(wanted: Iterable[Mapping[str, Any]], going: Iterable[int]) -> dict[int, int]:
    """Return the live memory that occupies the topic or title each of ``wanted`` needs, by memory.

    Args:
        wanted: memories as ``MemoryNow.named`` returns them; if two want the same name, the younger one gets it.
        going: memories that the same plan deletes or quarantines.
    """
    newest_first = sorted(wanted, key=lambda memory: -memory["id"])
    taken = dict(rows.fetch(_RIVALS, [json.dumps(newest_first), listed(going)]))
    holders: dict[tuple[Any, ...], int] = {}
    for memory in newest_first:
        place = (memory["scope"], memory["session_id"] if memory["scope"] == "session" else "")
        name = (*place, memory["topic_key"]) if memory["topic_key"] else (*place, memory["kind"], memory["title"])
        holder = holders.get(name)
        if holder:
            taken.setdefault(memory["id"], holder)
        elif memory["id"] not in taken:
            holders[name] = memory["id"]
    return taken
