"""The events of a selection, former states of what they changed, and roll-backs.

Any number of memories, streams or values takes a constant number of queries.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any, Generic, NamedTuple, TypeVar

from django.db.models import Q
from pydantic import TypeAdapter

from governance.events import ROLLBACK_MADE, ROLLBACK_UNDONE
from governance.models import Rollback
from governance.rollback.schemas import SHOWN, RollbackList, RollbackView, Selection
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
from memoryhub.core import clock, log
from memoryhub.core.errors import NotFound
from memoryhub.core.events.event_types import names_where, types_reversed_by, types_that_change_streams
from memoryhub.core.events.rollback import Effect, Left, Step, Treatment, Values, count_events
from memoryhub.core.log.read import as_parameter, entity_of
from memoryhub.core.origin import PERSONS_DOORS
from memoryhub.core.paging import newest_first
from memoryhub.core.schemas import Listing
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS, TEXTS, elements, int_entries, json_int, json_list, json_text
from sessions_app.events import SESSION_ENDED
from sessions_app.models import Session

V = TypeVar("V")


class EventHeader(NamedTuple):
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
class SelectedEvents:
    """The events of a selection."""

    headers: list[EventHeader]

    @cached_property
    def positions(self) -> frozenset[int]:
        return frozenset(header.position for header in self.headers)

    @cached_property
    def streams(self) -> dict[int, str]:
        return {header.position: header.stream for header in self.headers}

    def of(self, *types: str) -> list[EventHeader]:
        return [header for header in self.headers if header.type in types]


def select(selection: Selection) -> SelectedEvents:
    """Return the events that match a selection, except those that govern the store."""
    columns = _matching(selection).values_list("position", "event_type", "stream_id", "session_id")
    return SelectedEvents(list(map(EventHeader._make, columns)))


def _matching(selection: Selection) -> log.EventQuerySet:
    governing = names_where(lambda kind: kind.rollback.treatment is Treatment.GOVERNS)
    events = log.events().without_undone().exclude(event_type__in=governing)
    if selection.session_id:
        own_stream = Q(stream_id=f"session:{selection.session_id}")
        events = events.filter(Q(session_id=selection.session_id) | own_stream)
    if selection.actor:
        events = events.filter(actor=selection.actor)
    if selection.source:
        events = events.filter(source=selection.source)
    if not selection.include_people and selection.source not in PERSONS_DOORS:
        events = events.exclude(source__in=PERSONS_DOORS)
    if isinstance(selection.since, int):
        events = events.window(after=selection.since - 1)
    elif selection.since is not None:
        events = events.window(since=clock.to_text(selection.since))
    if isinstance(selection.until, int):
        events = events.window(up_to=selection.until)
    elif selection.until is not None:
        events = events.window(until=clock.to_text(selection.until))
    return events


def listed(ids: Iterable[int]) -> str:
    """Return ids as the parameter of ``IDS``, in order."""
    return json_list(sorted(ids))


def find_rollback(rollback_id: int) -> Rollback:
    """Return a roll-back.

    Raises:
        NotFound: no roll-back has this id.
    """
    rollback: Rollback | None = Rollback.objects.filter(id=rollback_id).first()
    if rollback is None:
        raise NotFound(f"there is no roll-back #{rollback_id} in this store; list roll-backs to see their ids")
    return rollback


def list_rollbacks(*, command: RollbackList) -> Listing:
    """Return a page of roll-backs, latest first."""
    fields = {"id", "action"} if command.compact else None

    def views(rollbacks: Sequence[Rollback]) -> list[dict[str, Any]]:
        return [view(rollback).model_dump(mode="json", include=fields) for rollback in rollbacks]

    return newest_first(Rollback.objects.all(), command, views, rollback_line)


def view(rollback: Rollback) -> RollbackView:
    """Return a roll-back in the form that callers get."""
    names = set(RollbackView.model_fields) - {"counts", "left", "left_count", "undone_left"}
    return RollbackView(
        **{name: getattr(rollback, name) for name in names},
        counts=dict(Counter(step["do"] for step in rollback.steps)),
        left=rollback.left[:SHOWN],
        left_count=len(rollback.left),
        undone_left=rollback.undone_left[:SHOWN],
    )


def rollback_line(rollback: dict[str, Any]) -> str:
    """Return a roll-back as one line."""
    if "selection" not in rollback:
        return f"#{rollback['id']} {rollback['action']}"
    filters = ", ".join(f"{name}={value}" for name, value in rollback["selection"].items())
    line = f"#{rollback['id']} {clock.minute(rollback['made_at'])} {rollback['action']} of {filters}: "
    line += ", ".join(f"{count} × {do}" for do, count in rollback["counts"].items())
    if rollback["undone_at"]:
        line += f" (undone by {rollback['undone_by']})"
    if rollback["reason"]:
        line += f": {rollback['reason']}"
    return line


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

STEPS = TypeAdapter(list[Step])
LEFTS = TypeAdapter(list[Left])


def ids_of(steps: Iterable[Step]) -> list[int]:
    """Return the ids of the things that steps change."""
    return [step.id for step in steps]


def unchanged(ids: Iterable[int], why: str, *, title: str = "") -> list[Left]:
    """Return reports on things that stay as they are, all for one reason."""
    return [Left(id=thing_id, title=title, why=why) for thing_id in ids]


def events_of(thing: str, ids: Iterable[Any]) -> log.EventQuerySet:
    """Return the events of the streams of some memories, decisions, relations or sessions."""
    return log.events().without_undone().of_stream(*(f"{thing}:{thing_id}" for thing_id in ids))


class Change(NamedTuple, Generic[V]):
    """A value that an event set."""

    position: int
    actor: str
    value: V


@dataclass(slots=True)
class History(Generic[V]):
    """The values that one thing had, one after the other."""

    # Ascending
    changes: list[Change[V]] = field(default_factory=list)

    def before(self, limit: int, ignored: Collection[int], default: V) -> V:
        for change in reversed(self.changes):
            if change.position < limit and change.position not in ignored:
                return change.value
        return default

    def without(self, void: Collection[int]) -> History[V]:
        return History([change for change in self.changes if change.position not in void])


def changed_since(since: Mapping[str, int], own_positions: Iterable[int], void: Iterable[int] = ()) -> dict[str, str]:
    """Return a note on the last change by others, by stream; unchanged streams are left out.

    Args:
        since: a position by stream; only later events count.
        own_positions: positions of the caller's own events.
        void: positions that don't count as changes.
    """
    ignored = frozenset(void)
    # SQLite may read all events of a type, so it must not begin with the first
    later = log.events().window(after=min(since.values(), default=0))
    changes = later.without_undone().of_stream(*since).of_type(*types_that_change_streams())
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


def name_of(memory: Memory, state: MemoryState | None = None) -> dict[str, Any]:
    """Return what must be unique of a memory, at present or in a former state."""
    source = state or memory
    name = {"scope": source.scope, "kind": source.kind, "title": source.title, "topic_key": source.topic_key}
    return {"id": memory.id, "session_id": memory.session_id, **name}


def deletion_histories(memories: Mapping[int, Memory]) -> Mapping[int, History[bool]]:
    """Return when each memory was deleted, by itself or with its scratch session, and when it was restored."""
    histories = _own_deletions(memories)
    sessions = {memory.session_id for memory in memories.values()} - {""}
    for entry in entries_at_end(events_of("session", sessions).of_type(SESSION_ENDED)):
        if entry.is_discarded and entry.memory_id in memories:
            histories[entry.memory_id].changes.append(Change(entry.position, "", True))
    for history in histories.values():
        history.changes.sort()
    return histories


def _own_deletions(memory_ids: Iterable[int]) -> defaultdict[int, History[bool]]:
    histories: defaultdict[int, History[bool]] = defaultdict(History)
    for event in events_of("memory", memory_ids).of_type(MEMORY_DELETED, MEMORY_RESTORED):
        is_deletion = event.event_type == MEMORY_DELETED.name
        histories[entity_of(event)].changes.append(Change(event.position, event.actor, is_deletion))
    return histories


class EntryAtEnd(NamedTuple):
    """An entry of a scratch session that was live when the session ended."""

    memory_id: int
    # The end of the session
    position: int
    # Whether the end deleted it; else it moved to the project
    is_discarded: bool


def entries_at_end(ends: log.EventQuerySet) -> Iterator[EntryAtEnd]:
    """Yield the entries that these ends of sessions deleted or moved to the project."""
    payloads: dict[int, dict[str, Any]] = {}
    names = {}
    for position, stream, payload_json in ends.readable().values_list("position", "stream_id", "payload_json"):
        payload = json.loads(payload_json or "")
        if payload.get("entries") is not None:
            payloads[position] = payload
            names[position] = stream.partition(":")[2]
    if not payloads:
        return
    sessions = Session.objects.filter(session_id__in=as_parameter(TEXTS, names.values()))
    starts = dict(sessions.values_list("session_id", "id"))
    written: dict[str, list[int]] = {name: [] for name in starts}
    memories = Memory.objects.filter(session_id__in=as_parameter(TEXTS, starts)).order_by("id")
    for memory_id, name in memories.values_list("id", "session_id"):
        if memory_id > starts[name]:
            written[name].append(memory_id)
    deletions = _own_deletions(chain.from_iterable(written.values()))
    for position, payload in payloads.items():
        for memory_id in written.get(names[position], ()):
            if memory_id < position and not deletions[memory_id].before(position, (), False):
                is_kept = memory_id in payload.get("kept", ())
                yield EntryAtEnd(memory_id, position, payload["entries"] == EndedWith.DISCARD and not is_kept)


def review_histories(ids: Collection[int]) -> dict[int, History[ReviewStatus]]:
    """Return the verdicts on each of the memories."""
    histories: dict[int, History[ReviewStatus]] = {memory_id: History() for memory_id in ids}
    for event in events_of("memory", ids).of_type(MEMORY_WRITTEN, MEMORY_REVISED, MEMORY_REVIEWED):
        payload = json.loads(event.payload_json or "{}")
        review = payload.get("after") or payload.get("review")
        status = ReviewStatus.model_validate(review or ACCEPTED)
        histories[entity_of(event)].changes.append(Change(event.position, event.actor, status))
    return histories


def clean_versions(before: Mapping[int, int], rolled_back: Iterable[int]) -> dict[int, int]:
    """Return the last version of each memory before its position that no rolled-back event wrote."""
    return dict(rows.fetch(_CLEAN, [json.dumps(before), listed(rolled_back)]))


def rivals(names: Iterable[Mapping[str, Any]], going: Iterable[int]) -> dict[int, int]:
    """Return the live memory that occupies the topic or title each of ``names`` needs, by memory.

    Args:
        names: memories as ``name_of`` returns them; if two want the same name, the younger one gets it.
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


def value_histories(effect: Effect, ids: Iterable[int] = ()) -> dict[Any, History[Any]]:
    """Return the values of settings by name, or those of memories or decisions by id: of these ``ids``."""
    values = values_of(effect)
    events = log.events().without_undone()
    if values.thing:
        events = events_of(values.thing, ids)
    events = events.of_type(*values.also, *types_reversed_by(effect.step)).readable()
    histories: dict[Any, History[Any]] = {}
    for event in events:
        for key, value in values.read(event.position, json.loads(event.payload_json or "")).items():
            histories.setdefault(key, History()).changes.append(Change(event.position, event.actor, value))
    return histories


def values_of(effect: Effect) -> Values:
    """Return how an effect reads and writes values."""
    if effect.values is None:
        raise TypeError(f"effect {effect.step!r} has no values")
    return effect.values


def cancelled_positions() -> frozenset[int]:
    """Return the positions of undone roll-backs, of their steps and of the undo: together they change nothing."""
    rollbacks: dict[int, range] = {}
    cancelled: set[int] = set()
    for event in log.events().of_type(ROLLBACK_MADE, ROLLBACK_UNDONE).readable():
        payload = json.loads(event.payload_json or "")
        steps = STEPS.validate_python(payload.get("steps", []))
        positions = range(event.position, event.position + 1 + count_events(steps))
        if event.event_type == ROLLBACK_MADE.name:
            rollbacks[event.position] = positions
        else:
            cancelled.update(positions, rollbacks.get(payload["rollback_id"], ()))
    return frozenset(cancelled)
