"""Trace a selection of events: what it touched, and what others made from it or wrote where it had been shown."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeVar

from governance.rollback.schemas import SHOWN, Group, Selection, Thing, Trace
from governance.rollback.selectors import (
    EventHeader,
    SelectedEvents,
    cancelled_positions,
    changed_since,
    entries_at_end,
    listed,
    select,
)
from memories.events import RELATION_CREATED
from memoryhub.core import log
from memoryhub.core.entities import Entity, find_entities
from memoryhub.core.events.event_types import event_type, names_where, rollback_groups, types_in_group
from memoryhub.core.events.rollback import RollbackRule, Treatment
from memoryhub.core.log.quarantine import quarantine_marks
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS, TEXTS, either, entries, int_elements, int_entries, position_of
from sessions_app.timeline import TimelineItem, entries_of

T = TypeVar("T")

# Titles of the groups of downstream items
_TITLES = {
    "later_versions": "Later versions based on it",
    "built_on": "Built on it",
    "relations": "Relations added by others",
    "packs": "Context packs that included it",
    "told_sessions": "Sessions that received those packs",
    "influenced": "Written in those sessions afterwards",
}

_CITING_STREAM = position_of("':'", "c.stream_id")
_MARK = position_of("' #'", "j.key")

# Versions of memories that were made from the selection's versions, directly or through others
_LATER = f"""
WITH RECURSIVE later(memory_id, version, base) AS (
    SELECT memory_id, version, CAST(0 AS bigint) FROM memories_memoryversion WHERE id IN {IDS}
    UNION
    SELECT v.memory_id, v.version, v.base_version FROM later
        JOIN memories_memoryversion v ON v.memory_id = later.memory_id AND v.base_version = later.version
)
SELECT v.memory_id, v.version, v.base_version, v.id FROM later
    JOIN memories_memoryversion v ON v.memory_id = later.memory_id AND v.version = later.version
    WHERE v.id NOT IN {IDS} ORDER BY v.id
"""

# References to an item that were made after the selection created or changed it: columns, table, join, condition
_REFERENCES = (
    (
        "e.from_id, e.to_id, e.relation, e.event",
        "decisions_decisionedge e",
        "e.to_id = r.id",
        "e.relation IN ('supersedes', 'refines', 'depends_on') AND e.event > r.at",
    ),
    (
        "m.source_id, m.target_id, m.relation, m.id",
        "memories_relation m",
        "m.target_id = r.id",
        "m.relation IN ('depends_on', 'supersedes', 'derived_from') AND m.id > r.at",
    ),
    (
        f"CAST(substr(c.stream_id, {_CITING_STREAM} + 1) AS bigint), c.memory_id, 'cites', r.at",
        "memories_memorycitation c",
        "c.memory_id = r.id",
        "(c.stream_id LIKE 'memory:%%' OR c.stream_id LIKE 'decision:%%') AND replace(c.cited_at, ' ', 'T') >= "
        "substr((SELECT occurred_at FROM raw_events WHERE position = r.at), 1, 19)",
    ),
    (
        "l.commit_id, l.decision_id, l.link_type, l.event",
        "decisions_commitlink l",
        "l.decision_id = r.id",
        "l.event > r.at",
    ),
)
# PostgreSQL lets a query refer to itself only once
_FOLLOWED = either(
    " ".join(
        f"UNION SELECT {columns} FROM reach r JOIN {table} ON {join} WHERE {condition}"
        for columns, table, join, condition in _REFERENCES
    ),
    "UNION SELECT n.* FROM reach r CROSS JOIN LATERAL ("
    + " UNION ALL ".join(
        f"SELECT {columns} FROM {table} WHERE {join} AND {condition}" for columns, table, join, condition in _REFERENCES
    )
    + ") AS n",
)
_NO_TEXT = either("''", "'' COLLATE \"C\"")

# Follow references to any depth
_BUILT = f"""
WITH RECURSIVE start(id, at) AS (SELECT CAST(key AS bigint), value FROM {int_entries()} AS since),
reach(id, via, how, at) AS (
    SELECT id, CAST(0 AS bigint), {_NO_TEXT}, at FROM start
    {_FOLLOWED}
)
SELECT id, via, how, min(at) FROM reach WHERE via > 0 AND id NOT IN (SELECT id FROM start)
    GROUP BY id, via, how ORDER BY id, via
"""

_RELATED = f"""
SELECT id, source_id, target_id, relation FROM memories_relation
    WHERE (source_id IN {IDS} OR target_id IN {IDS})
    AND id NOT IN {IDS} ORDER BY id
"""

# Context packs that included an item after the selection touched it; marks look like "memory #12"
_PACKS = f"""
WITH s(id, at) AS MATERIALIZED (SELECT CAST(key AS bigint), value FROM {int_entries()} AS since),
packed(pack, session, id) AS MATERIALIZED (
    SELECT p.id, p.session_id, CAST(substr(j.key, {_MARK} + 2) AS INTEGER) FROM memories_contextpack p
        JOIN {entries("p.marks")} j ON true WHERE p.id > %s AND {_MARK} > 0
)
SELECT packed.pack, packed.session, min(s.id) FROM packed JOIN s ON s.id = packed.id
    WHERE packed.pack > s.at GROUP BY packed.pack, packed.session ORDER BY packed.pack
"""

# What a session wrote after it got such a pack
_INFLUENCED = f"""
SELECT e.position, s.value FROM {int_entries()} s
    JOIN raw_events e ON e.session_id = s.key AND e.position > s.value
    WHERE e.event_type IN {TEXTS}
    AND e.position NOT IN {IDS} ORDER BY e.position
"""


# Groups that no event type declares: one is worked out from revisions, the other has the events of no group.
_WORKED_OUT = (
    RollbackRule(Treatment.SET_ASIDE, "conflicts", "Conflicts opened", 60, follows_stream=True),
    RollbackRule(Treatment.STAYS, "other", "Other events", 1000, can_leave=False),
)


def groups() -> dict[str, RollbackRule]:
    rules = rollback_groups() | {rule.group: rule for rule in _WORKED_OUT}
    return dict(sorted(rules.items(), key=lambda pair: pair[1].order))


@dataclass(slots=True)
class Touched:
    id: int
    events: list[int] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)

    @property
    def first(self) -> int:
        return self.events[0]


# By group and id
Direct = Mapping[str, Mapping[int, Touched]]


def touched_by(selected: SelectedEvents) -> Direct:
    by_group: dict[str, dict[int, Touched]] = {name: {} for name in groups()}
    for header in selected.headers:
        kind = event_type(header.type)
        if kind is None or not kind.rollback.group:
            _add(by_group["other"], header.position, header.position)
        elif kind.rollback.group not in _LOOKED_UP:
            changed = kind.rollback.treatment is Treatment.REVERSED and header.entity
            _add(by_group[kind.rollback.group], changed or header.position, header.position)
    for group, look_up in _LOOKED_UP.items():
        look_up(by_group, selected.of(*types_in_group(group)))
    return by_group


def _add(group: dict[int, Touched], thing: int, position: int) -> None:
    group.setdefault(thing, Touched(thing)).events.append(position)


def _add_revised(by_group: dict[str, dict[int, Touched]], events: list[EventHeader]) -> None:
    versions = rows.fetch(
        "SELECT id, memory_id, version, conflicts_with IS NOT NULL FROM memories_memoryversion "
        f"WHERE id IN {IDS} ORDER BY id",
        [listed(header.position for header in events)],
    )
    created = by_group["memories_created"]
    for position, memory_id, version, is_conflict in versions:
        group = created if memory_id in created else by_group["memories_revised"]
        _add(group, memory_id, position)
        group[memory_id].versions.append(version)
        if is_conflict:
            _add(by_group["conflicts"], position, position)


# A session's row shows its purpose and summary, which the events that start and end it contain
def _add_sessions(by_group: dict[str, dict[int, Touched]], events: list[EventHeader]) -> None:
    ids = _session_ids({header.stream.partition(":")[2] for header in events})
    for header in events:
        session = ids.get(header.stream.partition(":")[2])
        if session:
            _add(by_group["sessions"], session, header.position)
        else:
            _add(by_group["other"], header.position, header.position)
    for entry in entries_at_end(log.events().at(header.position for header in events)):
        if entry.is_discarded:
            _add(by_group["memories_deleted"], entry.memory_id, entry.position)


# A turn's row shows its summary, which the event that ends it contains
def _add_turns(by_group: dict[str, dict[int, Touched]], events: list[EventHeader]) -> None:
    turns = rows.fetch(
        f"SELECT e.position, t.id FROM {int_elements()} p JOIN raw_events e ON e.position = p.value "
        "JOIN sessions_app_turn t ON t.session_id = e.session_id AND t.turn_id = e.turn_id ORDER BY e.position",
        [listed(header.position for header in events)],
    )
    for position, turn in turns:
        _add(by_group["turns"], turn, position)


# Groups whose things have other ids than the events or their streams.
_LOOKED_UP = {"memories_revised": _add_revised, "sessions": _add_sessions, "turns": _add_turns}


def _session_ids(names: Iterable[str]) -> dict[str, int]:
    sql = f"SELECT session_id, id FROM sessions_app_session WHERE session_id IN {TEXTS}"
    return dict(rows.fetch(sql, [json.dumps(sorted(names))]))


def touched_things(direct: Direct) -> list[Touched]:
    return [thing for group in direct.values() for thing in group.values()]


@dataclass(frozen=True, slots=True)
class Derived:
    id: int
    # The event that created the connection
    event: int
    via: int
    how: str
    depth: int = 1


# By the names of ``_TITLES``
Downstream = Mapping[str, list[Derived]]


def find_downstream(direct: Direct, selected: SelectedEvents) -> Downstream:
    since: dict[int, int] = {}
    for name, rule in groups().items():
        if rule.is_cited:
            since |= {thing.id: thing.first for thing in direct[name].values()}
    built = _built_on(since)
    packs = rows.fetch(_PACKS, [json.dumps(since), min(since.values())]) if since else []
    # The first such pack of each session
    sessions = {session: pack for pack, session, _ in reversed(packs) if session}
    ids = _session_ids(sessions)
    received = sorted((session_id, sessions[name]) for name, session_id in ids.items())
    selected_ids = {*selected.positions, *since, *(thing.id for thing in built)}
    return {
        "later_versions": _later_versions(direct),
        "built_on": built,
        "relations": _relations(set(since), selected),
        "packs": [Derived(pack, pack, via, "included") for pack, _, via in packs],
        "told_sessions": [Derived(session_id, pack, pack, "received") for session_id, pack in received],
        "influenced": _influenced(sessions, selected_ids),
    }


def _later_versions(direct: Direct) -> list[Derived]:
    written: list[int] = []
    for thing in (*direct["memories_created"].values(), *direct["memories_revised"].values()):
        written += thing.events
    return [
        Derived(memory_id, event, memory_id, f"version {version} is based on version {base}")
        for memory_id, version, base, event in rows.fetch(_LATER, [listed(written)] * 2)
    ]


# Each item once, with the shortest path
def _built_on(since: Mapping[int, int]) -> list[Derived]:
    by_parent: dict[int, list[tuple[int, str, int]]] = {}
    for child, parent, how, event in rows.fetch(_BUILT, [json.dumps(since)]):
        by_parent.setdefault(parent, []).append((child, how, event))
    derived: dict[int, Derived] = {}
    depth = 1
    parents = sorted(since)
    while parents:
        following = []
        for parent in parents:
            for child, how, event in by_parent.get(parent, ()):
                if child not in derived:
                    derived[child] = Derived(child, event, parent, how, depth)
                    following.append(child)
        parents = following
        depth += 1
    return list(derived.values())


def _relations(ids: set[int], selected: SelectedEvents) -> list[Derived]:
    relations = []
    for relation, source, target, how in rows.fetch(_RELATED, [listed(ids), listed(ids), listed(selected.positions)]):
        via = source if source in ids else target
        relations.append(Derived(relation, relation, via, how))
    return relations


def _influenced(sessions: Mapping[str, int], selected_ids: set[int]) -> list[Derived]:
    types = names_where(lambda kind: kind.rollback.thing and kind.rollback.treatment is Treatment.SET_ASIDE)
    writes = rows.fetch(_INFLUENCED, [json.dumps(sessions), json.dumps(types), listed(selected_ids)])
    return [Derived(position, position, pack, "may have been influenced by") for position, pack in writes]


@dataclass(frozen=True, slots=True)
class Traced:
    selected: SelectedEvents
    direct: Direct
    downstream: Downstream


def trace(selection: Selection) -> Traced:
    selected = select(selection)
    direct = touched_by(selected)
    return Traced(selected, direct, find_downstream(direct, selected))


_SESSIONS = 20


def view_trace(traced: Traced) -> Trace:
    headers = traced.selected.headers
    view = _TraceView(traced)
    sessions = dict.fromkeys(header.session for header in headers if header.session)
    return Trace(
        events=len(headers),
        first=headers[0].position if headers else None,
        last=headers[-1].position if headers else None,
        sessions=list(sessions)[:_SESSIONS],
        direct=list(view.direct()),
        derived=list(view.derived()),
    )


# Bounded lists, exact counts
class _TraceView:
    def __init__(self, traced: Traced) -> None:
        self._traced = traced
        self._rules = groups()
        ids: set[int] = set()
        positions: set[int] = set()
        for group in traced.direct.values():
            for touched in _first(group.values()):
                ids.add(touched.id)
                positions.add(touched.first)
        for things in traced.downstream.values():
            for derived in _first(things):
                ids.add(derived.id)
                positions.add(derived.event)
        self._entities = find_entities(ids)
        self._marks = quarantine_marks(ids)
        entries = entries_of(list(log.events().at(positions)))
        self._entries: dict[int, TimelineItem] = {entry.position: entry for entry in entries}
        self._changed = changed_since(self._streams(), traced.selected.positions, cancelled_positions())

    # The first change of each item that others may have changed since
    def _streams(self) -> dict[str, int]:
        streams = {}
        for name, rule in self._rules.items():
            if rule.thing and rule.is_hidden:
                for thing in _first(self._traced.direct[name].values()):
                    streams[f"{rule.thing}:{thing.id}"] = thing.first
        return streams

    def direct(self) -> Iterator[Group]:
        for name, group in self._traced.direct.items():
            if group:
                rule = self._rules[name]
                things = [self._touched(rule, thing) for thing in _first(group.values())]
                yield Group(name=name, title=rule.title, count=len(group), shown=things)

    def derived(self) -> Iterator[Group]:
        for name, group in self._traced.downstream.items():
            if group:
                things = [
                    self._thing(thing.id, thing.event, via=thing.via, how=thing.how, depth=thing.depth)
                    for thing in _first(group)
                ]
                yield Group(name=name, title=_TITLES[name], count=len(group), shown=things)

    def _touched(self, rule: RollbackRule, touched: Touched) -> Thing:
        thing = self._thing(touched.id, touched.first, events=len(touched.events), versions=touched.versions)
        thing.type = rule.thing or thing.type
        thing.changed_since = self._changed.get(f"{thing.type}:{thing.id}", "")
        return thing

    def _thing(self, thing_id: int, event: int, **fields: Any) -> Thing:
        mark = self._marks.get(thing_id, "")
        kind, title = self._type(thing_id, event), self._title(thing_id, event)
        return Thing(id=thing_id, type=kind, title=title, event=event, quarantined=mark, **fields)

    def _type(self, thing: int, event: int) -> str:
        entity = self._entities.get(thing)
        return entity.type if entity else self._entries[event].type.partition(".")[0]

    def _title(self, thing: int, event: int) -> str:
        entity: Entity | None = self._entities.get(thing)
        if entity and entity.title:
            return entity.title
        entry = self._entries[event]
        if entry.type == RELATION_CREATED.name:
            return "#{source_id} {relation} #{target_id}".format_map(entry.fields)
        return entry.title or entry.type


def _first(things: Iterable[T]) -> list[T]:
    return list(islice(things, SHOWN))
