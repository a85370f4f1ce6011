"""Current state and history of memories and streams; one query for any number of them."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
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
from memories.models import Memory
from memoryhub.config.retention_rules import EndedWith
from memoryhub.core import log
from memoryhub.core.events.event_types import types_reversed_by, types_that_change_streams
from memoryhub.core.events.rollback import Effect, Step, Values, count_events
from memoryhub.core.log.read import as_parameter, entity_of
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS, elements, int_entries, json_int, json_text
from sessions_app.events import SESSION_ENDED
from sessions_app.models import Session

V = TypeVar("V")

_MEMORIES = f"""
SELECT id, version, deleted_at IS NOT NULL, session_id, kind, scope, title, topic_key FROM memories_memory
    WHERE id IN {IDS}
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
    ignored = frozenset(void)
    changes = log.events().of_stream(*since).of_type(*types_that_change_streams())
    last: dict[str, tuple[int, str]] = {}
    for stream, position, actor in changes.values_list("stream_id", "position", "actor"):
        if position > since[stream] and position not in ignored:
            last[stream] = position, actor
    notes = {}
    own_changes = frozenset(own_positions)
    for stream, (position, actor) in last.items():
        if position not in own_changes:  # a stream whose last change is our own is unchanged
            notes[stream] = f"changed since by {actor} at #{position}"
    return notes


# Erased memories are left out
def memories_now(ids: Collection[int]) -> dict[int, MemoryNow]:
    events = _events_of_memories(ids).of_type(MEMORY_DELETED, MEMORY_RESTORED)
    changes = [(event.position, entity_of(event), event.event_type == MEMORY_DELETED.name) for event in events]
    names = (
        Memory.objects.filter(id__in=as_parameter(IDS, ids))
        .exclude(session_id="")
        .values_list("session_id", flat=True)
        .distinct()
    )
    ends = log.events().of_type(SESSION_ENDED).of_stream(*(f"session:{name}" for name in names))
    for memory_id, position in discarded_by(ends.positions()):
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


def _events_of_memories(ids: Iterable[int]) -> log.EventQuerySet:
    return log.events().of_stream(*(f"memory:{memory_id}" for memory_id in ids))


# Memories that the ends of scratch sessions deleted, each with that event
def discarded_by(positions: Iterable[int]) -> list[tuple[int, int]]:
    return [(memory_id, position) for memory_id, position, deleted in _ended_entries(positions) if deleted]


# Memories that the ends of scratch sessions moved to the project
def promoted_by(positions: Iterable[int]) -> set[int]:
    return {memory_id for memory_id, _, deleted in _ended_entries(positions) if not deleted}


# Entries of scratch sessions that were live when the session ended, and whether the end deleted them
def _ended_entries(positions: Iterable[int]) -> Iterator[tuple[int, int, bool]]:
    for event in log.events().at(positions).readable():
        payload = json.loads(event.payload_json or "")
        session = Session.objects.filter(session_id=event.stream_id.partition(":")[2]).first()
        if payload.get("entries") is None or session is None:
            continue
        written = Memory.objects.filter(session_id=session.session_id, id__gt=session.id, id__lt=event.position)
        ids = written.order_by("id").values_list("id", flat=True)
        changes = _events_of_memories(ids).of_type(MEMORY_DELETED, MEMORY_RESTORED).window(up_to=event.position - 1)
        last_change = {entity_of(change): change.event_type for change in changes}
        for memory_id in ids:
            if last_change.get(memory_id) != MEMORY_DELETED.name:
                is_kept = memory_id in payload.get("kept", ())
                yield memory_id, event.position, payload["entries"] == EndedWith.DISCARD and not is_kept


def review_states_of(ids: Collection[int]) -> dict[int, StateHistory[ReviewStatus]]:
    histories: dict[int, StateHistory[ReviewStatus]] = {memory_id: StateHistory() for memory_id in ids}
    for event in _events_of_memories(ids).of_type(MEMORY_WRITTEN, MEMORY_REVISED, MEMORY_REVIEWED):
        payload = json.loads(event.payload_json or "{}")
        review = payload.get("after") or payload.get("review")
        status = ReviewStatus.model_validate(review) if review else ACCEPTED
        histories[entity_of(event)].changes.append((event.position, status))
    return histories


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
    events = log.events().of_type(*values.also, *types_reversed_by(effect.step)).readable()
    if values.thing:
        events = events.of_stream(*(f"{values.thing}:{thing_id}" for thing_id in ids))
    histories: dict[Any, ValueHistory] = {}
    for event in events:
        for key, value in values.read(event.position, json.loads(event.payload_json or "")).items():
            histories.setdefault(key, ValueHistory()).values.append((event.position, event.actor, value))
    return histories


def values_of(effect: Effect) -> Values:
    if effect.values is None:
        raise TypeError(f"effect {effect.step!r} has no values")
    return effect.values


# Positions of roll-backs that were undone, of their steps, and of the undo: together they change nothing
def void_positions() -> frozenset[int]:
    rollbacks: dict[int, range] = {}
    void: set[int] = set()
    for event in log.events().of_type(ROLLBACK_MADE, ROLLBACK_UNDONE).readable():
        payload = json.loads(event.payload_json or "")
        steps = [Step.model_validate(step) for step in payload.get("steps", [])]
        positions = range(event.position, event.position + 1 + count_events(steps))
        if event.event_type == ROLLBACK_MADE.name:
            rollbacks[event.position] = positions
        else:
            void.update(positions, rollbacks.get(payload["rollback_id"], ()))
    return frozenset(void)
