"""Current state and history of memories and streams; one query for any number of them."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from governance.events import ROLLBACK_MADE, ROLLBACK_UNDONE
from governance.rollback.selectors import listed
from memories.events import (
    ACCEPTED,
    MEMORY_DELETED,
    MEMORY_RESTORED,
    MEMORY_REVIEWED,
    MEMORY_REVISED,
    MEMORY_WRITTEN,
    MemoryState,
    ReviewStatus,
)
from memoryhub.config.retention_rules import EndedWith
from memoryhub.core.events.event_types import types_reversed_by, types_that_change_streams
from memoryhub.core.events.rollback import Effect, Step, Values, count_events
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS, TEXTS, elements, int_elements, int_entries, json_int, json_text
from sessions_app.events import SESSION_ENDED

V = TypeVar("V")

# The last change of each stream after a position; a stream whose last change is our own is unchanged
_CHANGED = f"""
WITH s(stream, at) AS MATERIALIZED (SELECT key, value FROM {int_entries()} AS since),
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
WITH streams(id, stream) AS MATERIALIZED (SELECT value, 'memory:' || value FROM {int_elements()} AS ids)
SELECT w.id, e.position, e.event_type, {{}} FROM streams w JOIN raw_events e ON e.stream_id = w.stream
    WHERE e.event_type IN {TEXTS} ORDER BY e.position
"""
_NO_VALUE = "NULL"
_REVIEW = f"coalesce({json_text('e.payload_json', 'after')}, {json_text('e.payload_json', 'review')})"

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
        FROM {elements()} AS names
),
o AS MATERIALIZED (
    SELECT {", ".join(_NAMES)} FROM memories_memory WHERE deleted_at IS NULL
        AND id NOT IN {IDS} AND id NOT IN (SELECT id FROM quarantine)
),
rivals(id, rival) AS (
    SELECT m.id, o.id FROM m JOIN o ON o.topic_key = m.topic_key AND {_SAME_PLACE}
    UNION ALL SELECT m.id, o.id FROM m JOIN o ON o.title = m.title AND o.kind = m.kind AND {_SAME_PLACE}
        WHERE m.topic_key IS NULL AND o.topic_key IS NULL
)
SELECT id, min(rival) FROM rivals GROUP BY id
"""

# Greater than every position.
NEVER = 2**53


@dataclass(slots=True)
class StateHistory(Generic[V]):
    # Position and value, ascending
    changes: list[tuple[int, V]] = field(default_factory=list)

    def before(self, limit: int, ignored: Collection[int], default: V) -> V:
        for position, value in reversed(self.changes):
            if position < limit and position not in ignored:
                return value
        return default


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
    deletions: StateHistory[bool]

    def named(self, state: MemoryState | None = None) -> dict[str, Any]:
        source = state or self
        name = {"scope": source.scope, "kind": source.kind, "title": source.title, "topic_key": source.topic_key}
        return {"id": self.id, "session_id": self.session_id, **name}


def changed_since(since: Mapping[str, int], own_positions: Iterable[int], void: Iterable[int] = ()) -> dict[str, str]:
    """Return a note on the last change by others, by stream; unchanged streams are left out.

    Args:
        since: a position by stream; only later events count.
        own_positions: positions of the caller's own events.
        void: positions that don't count as changes.
    """
    parameters = [json.dumps(since), json.dumps(types_that_change_streams()), listed(void), listed(own_positions)]
    changes = rows.fetch(_CHANGED, parameters)
    return {stream: f"changed since by {actor} at #{position}" for stream, actor, position in changes}


# Erased memories are left out
def memories_now(ids: Collection[int]) -> dict[int, MemoryNow]:
    changes: list[tuple[int, int, bool]] = []
    for memory_id, position, name, _ in _history(ids, _NO_VALUE, MEMORY_DELETED.name, MEMORY_RESTORED.name):
        changes.append((position, memory_id, name == MEMORY_DELETED.name))
    ends = [position for (position,) in rows.fetch(_ENDS_OF_SESSIONS, [listed(ids)])]
    for memory_id, position in discarded_by(ends):
        if memory_id in ids:
            changes.append((position, memory_id, True))
    deletions: dict[int, StateHistory[bool]] = {}
    for position, memory_id, deleted in sorted(changes):
        deletions.setdefault(memory_id, StateHistory()).changes.append((position, deleted))
    now = {}
    for memory_id, version, deleted, session, kind, scope, title, topic in rows.fetch(_MEMORIES, [listed(ids)]):
        history = deletions.get(memory_id, StateHistory())
        now[memory_id] = MemoryNow(memory_id, version, bool(deleted), session, kind, scope, title, topic, history)
    return now


# Memories that the ends of scratch sessions deleted, each with that event
def discarded_by(positions: Iterable[int]) -> list[tuple[int, int]]:
    ended = rows.fetch(_ENDED, [listed(positions)])
    return [(memory_id, position) for memory_id, position, deleted in ended if deleted]


# Memories that the ends of scratch sessions moved to the project
def promoted_by(positions: Iterable[int]) -> set[int]:
    return {memory_id for memory_id, _, deleted in rows.fetch(_ENDED, [listed(positions)]) if not deleted}


def review_states_of(ids: Collection[int]) -> dict[int, StateHistory[ReviewStatus]]:
    names = (MEMORY_WRITTEN.name, MEMORY_REVISED.name, MEMORY_REVIEWED.name)
    histories: dict[int, StateHistory[ReviewStatus]] = {memory_id: StateHistory() for memory_id in ids}
    for memory_id, position, _, review in _history(ids, _REVIEW, *names):
        status = ReviewStatus.model_validate_json(review) if review else ACCEPTED
        histories[memory_id].changes.append((position, status))
    return histories


def _history(ids: Iterable[int], value: str, *types: str) -> list[Any]:
    return rows.fetch(_HISTORY.format(value), [listed(ids), json.dumps(types)])


def clean_versions(before: Mapping[int, int], rolled_back: Iterable[int]) -> dict[int, int]:
    return dict(rows.fetch(_CLEAN, [json.dumps(before), listed(rolled_back)]))


def rivals(names: Iterable[Mapping[str, Any]], going: Iterable[int]) -> dict[int, int]:
    """Return the live memory that occupies the topic or title each of ``names`` needs, by memory.

    Args:
        names: memories as ``MemoryNow.named`` returns them; if two want the same name, the younger one gets it.
        going: memories that the same plan deletes or quarantines.
    """
    newest_first = sorted(names, key=lambda memory: -memory["id"])
    occupied = dict(rows.fetch(_RIVALS, [json.dumps(newest_first), listed(going)]))
    holders: dict[tuple[Any, ...], int] = {}
    for memory in newest_first:
        place = (memory["scope"], memory["session_id"] if memory["scope"] == "session" else "")
        name = (*place, memory["topic_key"]) if memory["topic_key"] else (*place, memory["kind"], memory["title"])
        holder = holders.get(name)
        if holder:
            occupied.setdefault(memory["id"], holder)
        elif memory["id"] not in occupied:
            holders[name] = memory["id"]
    return occupied


@dataclass(slots=True)
class ValueHistory:
    # Position, actor and value, in order
    values: list[tuple[int, str, Any]] = field(default_factory=list)

    def last(self) -> tuple[int, str, Any]:
        return self.values[-1]

    def without(self, void: frozenset[int]) -> ValueHistory:
        return ValueHistory([entry for entry in self.values if entry[0] not in void])

    def clean(self, rolled_back: frozenset[int], before: int, default: Any) -> Any:
        for position, _, value in reversed(self.values):
            if position not in rolled_back and position < before:
                return value
        return default


# By name or by id; ``ids`` are those of memories or decisions, if the values belong to such
def value_histories(effect: Effect, ids: Iterable[int] = ()) -> dict[Any, ValueHistory]:
    values = values_of(effect)
    sql = f"SELECT position, actor, payload_json FROM raw_events WHERE event_type IN {TEXTS} "
    parameters = [json.dumps([*values.also, *(event_type.name for event_type in types_reversed_by(effect.step))])]
    if values.thing:
        sql += f"AND stream_id IN {TEXTS} "
        parameters.append(json.dumps([f"{values.thing}:{thing_id}" for thing_id in sorted(ids)]))
    histories: dict[Any, ValueHistory] = {}
    for position, actor, payload in rows.fetch(f"{sql} AND payload_json IS NOT NULL ORDER BY position", parameters):
        for key, value in values.read(position, json.loads(payload)).items():
            histories.setdefault(key, ValueHistory()).values.append((position, actor, value))
    return histories


def values_of(effect: Effect) -> Values:
    if effect.values is None:
        raise TypeError(f"effect {effect.step!r} has no values")
    return effect.values


_ROLLBACK_EVENTS = (
    "SELECT position, event_type, payload_json FROM raw_events "
    "WHERE event_type IN (%s, %s) AND payload_json IS NOT NULL ORDER BY position"
)


# Positions of roll-backs that were undone, of their steps, and of the undo: together they change nothing
def void_positions() -> frozenset[int]:
    rollbacks: dict[int, range] = {}
    void: set[int] = set()
    for position, event_type, payload_json in rows.fetch(_ROLLBACK_EVENTS, [ROLLBACK_MADE.name, ROLLBACK_UNDONE.name]):
        payload = json.loads(payload_json)
        steps = [Step.model_validate(step) for step in payload.get("steps", [])]
        positions = range(position, position + 1 + count_events(steps))
        if event_type == ROLLBACK_MADE.name:
            rollbacks[position] = positions
        else:
            void.update(positions, rollbacks.get(payload["rollback_id"], ()))
    return frozenset(void)
