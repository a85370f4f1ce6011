"""Events of a selection, roll-backs, and the current state and history of what they touched."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, NamedTuple, TypeVar

from governance.events import ROLLBACK_MADE, ROLLBACK_UNDONE
from governance.models import Rollback
from governance.rollback.schemas import SHOWN, Point, RollbackList, RollbackView, Selection
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
from memoryhub.core import clock
from memoryhub.core.errors import NotFound
from memoryhub.core.events.event_types import names_where, types_that_change_streams
from memoryhub.core.events.rollback import Left, Step, Treatment, count_events
from memoryhub.core.paging import decode_cursor, encode_cursor, page
from memoryhub.core.schemas import Listing
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import (
    IDS,
    TEXTS,
    elements,
    int_elements,
    int_entries,
    json_int,
    json_list,
    json_text,
)
from sessions_app.events import SESSION_ENDED

_SELECT = "SELECT position, event_type, stream_id, session_id FROM raw_events WHERE {} ORDER BY position"


class Header(NamedTuple):
    """The columns of an event without its payload."""

    position: int
    type: str
    stream: str
    session: str

    # Its own position, if its stream has no id
    @property
    def entity(self) -> int:
        tail = self.stream.partition(":")[2]
        return int(tail) if tail.isdecimal() else self.position


@dataclass(frozen=True)
class Selected:
    """The events of a selection."""

    headers: list[Header]
    by_type: dict[str, list[Header]] = field(default_factory=dict)

    @cached_property
    def positions(self) -> frozenset[int]:
        return frozenset(header.position for header in self.headers)

    @cached_property
    def streams(self) -> dict[int, str]:
        return {header.position: header.stream for header in self.headers}

    def of(self, *types: str) -> list[Header]:
        return sorted(header for name in types for header in self.by_type.get(name, ()))


def select(selection: Selection) -> Selected:
    """Return the events that match a selection, except those that govern the store."""
    conditions, parameters = _conditions(selection)
    headers = [Header(*row) for row in rows.fetch(_SELECT.format(" AND ".join(conditions)), parameters)]
    by_type: dict[str, list[Header]] = {}
    for header in headers:
        by_type.setdefault(header.type, []).append(header)
    return Selected(headers, by_type)


def _conditions(selection: Selection) -> tuple[list[str], list[Any]]:
    conditions = [f"event_type NOT IN {TEXTS}"]
    parameters: list[Any] = [json.dumps(names_where(lambda known: known.rollback.treatment is Treatment.GOVERNS))]
    if selection.session_id:
        conditions.append("(session_id = %s OR stream_id = %s)")
        parameters += [selection.session_id, f"session:{selection.session_id}"]
    for column in ("actor", "source"):
        if getattr(selection, column):
            conditions.append(f"{column} = %s")
            parameters.append(getattr(selection, column))
    if not selection.include_people and selection.source != "admin":
        conditions.append("source <> 'admin'")
    for point, by_position, by_time in (
        (selection.since, "position >= %s", "occurred_at >= %s"),
        (selection.until, "position <= %s", "occurred_at < %s"),
    ):
        if point is not None:
            conditions.append(by_position if isinstance(point, int) else by_time)
            parameters.append(_stored(point))
    return conditions, parameters


def _stored(point: Point) -> int | str:
    return point if isinstance(point, int) else clock.to_text(point)


def listed(ids: Iterable[int]) -> str:
    """Return ids as the parameter of ``IDS``, in order."""
    return json_list(sorted(ids))


def find_rollback(rollback_id: int) -> Rollback:
    """Return a roll-back.

    Raises:
        NotFound: no roll-back has this id.
    """
    found: Rollback | None = Rollback.objects.filter(id=rollback_id).first()
    if found is None:
        raise NotFound(f"there is no roll-back #{rollback_id} in this store; list roll-backs to see their ids")
    return found


def list_rollbacks(*, command: RollbackList) -> Listing:
    """Return a page of roll-backs, latest first."""
    cursor = decode_cursor(command.cursor, (int,))
    found = Rollback.objects.filter(id__lt=cursor[0]) if cursor else Rollback.objects.all()
    listed = list(found.order_by("-id")[: command.limit + 1])
    shown = [view(rollback).model_dump(mode="json") for rollback in listed[: command.limit]]
    return page(
        [{"id": item["id"], "action": item["action"]} for item in shown] if command.compact else shown,
        total=Rollback.objects.count(),
        more=len(listed) > command.limit,
        cursor_of=lambda item: encode_cursor(item["id"]),
        line=rollback_line,
        max_tokens=command.max_tokens,
    )


def view(rollback: Rollback) -> RollbackView:
    """Return a roll-back in the form that callers get."""
    names = set(RollbackView.model_fields) - {"counts", "left", "left_count", "undone_left"}
    return RollbackView(
        **{name: getattr(rollback, name) for name in names},
        counts=dict(Counter(step["do"] for step in rollback.steps)),
        left=[Left.model_validate(item) for item in rollback.left[:SHOWN]],
        left_count=len(rollback.left),
        undone_left=[Left.model_validate(item) for item in rollback.undone_left[:SHOWN]],
    )


def rollback_line(rollback: dict[str, Any]) -> str:
    """Return a roll-back as one line."""
    if "selection" not in rollback:
        return f"#{rollback['id']} {rollback['action']}"
    chosen = ", ".join(f"{name}={value}" for name, value in rollback["selection"].items())
    done = ", ".join(f"{count} × {do}" for do, count in rollback["counts"].items())
    undone = f" (undone by {rollback['undone_by']})" if rollback["undone_at"] else ""
    why = f": {rollback['reason']}" if rollback["reason"] else ""
    return (
        f"#{rollback['id']} {clock.minute(rollback['made_at'])} {rollback['action']} of {chosen}: {done}{undone}{why}"
    )


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


_ROLLBACK_EVENTS = (
    "SELECT position, event_type, payload_json FROM raw_events "
    "WHERE event_type IN (%s, %s) AND payload_json IS NOT NULL ORDER BY position"
)


# Positions of roll-backs that were undone, of their steps, and of the undo: together they change nothing
def void_positions() -> frozenset[int]:
    return frozenset(_void())


def _void() -> Iterator[int]:
    made: dict[int, range] = {}
    for position, event_type, payload_json in rows.fetch(_ROLLBACK_EVENTS, [ROLLBACK_MADE.name, ROLLBACK_UNDONE.name]):
        payload = json.loads(payload_json)
        steps = [Step.model_validate(step) for step in payload.get("steps", [])]
        own = range(position, position + 1 + count_events(steps))
        if event_type == ROLLBACK_MADE.name:
            made[position] = own
        else:
            yield from own
            yield from made.get(payload["rollback_id"], ())
