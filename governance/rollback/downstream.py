"""What a selection of events touched, and what others made from it or wrote where it had been shown."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from governance.rollback.selectors import Header, Selected, discarded_by, listed
from memoryhub.core.events.event_types import event_type, names_where, rollback_groups, types_in_group
from memoryhub.core.events.rollback import Rollback, Treatment
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS, TEXTS, either, entries, int_elements, int_entries, position_of

# Titles of the groups
GROUPS = {
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
WITH RECURSIVE start(id, at) AS (SELECT CAST(key AS bigint), value FROM {int_entries()} AS given),
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
WITH s(id, at) AS MATERIALIZED (SELECT CAST(key AS bigint), value FROM {int_entries()} AS given),
shown(pack, session, id) AS MATERIALIZED (
    SELECT p.id, p.session_id, CAST(substr(j.key, {_MARK} + 2) AS INTEGER) FROM memories_contextpack p
        JOIN {entries("p.marks")} j ON true WHERE p.id > %s AND {_MARK} > 0
)
SELECT shown.pack, shown.session, min(s.id) FROM shown JOIN s ON s.id = shown.id
    WHERE shown.pack > s.at GROUP BY shown.pack, shown.session ORDER BY shown.pack
"""

# What a session wrote after it got such a pack
_INFLUENCED = f"""
SELECT e.position, s.value FROM {int_entries()} s
    JOIN raw_events e ON e.session_id = s.key AND e.position > s.value
    WHERE e.event_type IN {TEXTS}
    AND e.position NOT IN {IDS} ORDER BY e.position
"""


@dataclass(frozen=True, slots=True)
class Derived:
    id: int
    # The event that created the connection
    event: int
    via: int
    how: str
    depth: int = 1


@dataclass(frozen=True, slots=True)
class Downstream:
    groups: Mapping[str, list[Derived]] = field(default_factory=dict)

    def ids(self, *names: str) -> set[int]:
        return {thing.id for name in names for thing in self.groups[name]}


def find_downstream(direct: Direct, selected: Selected) -> Downstream:
    rules = groups()
    cited = in_groups(direct, lambda name: rules[name].is_cited)
    since = {thing.id: thing.first for thing in cited}
    built = _built_on(since)
    packs = _packs(since)
    sessions = _sessions_given_packs(packs)
    known = {*selected.positions, *since, *(thing.id for thing in built)}
    found = {
        "later_versions": _later_versions(direct),
        "built_on": built,
        "relations": _relations(set(since), selected),
        "packs": [Derived(pack, pack, via, "included") for pack, _, via in packs],
        "told_sessions": [Derived(session_id, pack, pack, "received") for session_id, pack in _by_id(sessions)],
        "influenced": _influenced(sessions, known),
    }
    return Downstream(found)


def _later_versions(direct: Direct) -> list[Derived]:
    written = [event for name in ("memories_created", "memories_revised") for event in _events(direct[name])]
    positions = listed(written)
    return [
        Derived(memory_id, event, memory_id, f"version {version} is based on version {base}")
        for memory_id, version, base, event in rows.fetch(_LATER, [positions, positions])
    ]


def _events(group: Mapping[int, Touched]) -> list[int]:
    return [event for thing in group.values() for event in thing.events]


# Each item once, with the shortest path
def _built_on(since: Mapping[int, int]) -> list[Derived]:
    by_parent: dict[int, list[tuple[int, str, int]]] = {}
    for child, parent, how, event in rows.fetch(_BUILT, [json.dumps(since)]):
        by_parent.setdefault(parent, []).append((child, how, event))
    found: dict[int, Derived] = {}
    here, depth = sorted(since), 1
    while here:
        following = []
        for parent in here:
            for child, how, event in by_parent.get(parent, ()):
                if child not in found:
                    found[child] = Derived(child, event, parent, how, depth)
                    following.append(child)
        here, depth = following, depth + 1
    return list(found.values())


def _relations(ids: set[int], selected: Selected) -> list[Derived]:
    found = rows.fetch(_RELATED, [listed(ids), listed(ids), listed(selected.positions)])
    return [
        Derived(relation, relation, source if source in ids else target, how) for relation, source, target, how in found
    ]


def _packs(since: Mapping[int, int]) -> list[tuple[int, str, int]]:
    if not since:
        return []
    found = rows.fetch(_PACKS, [json.dumps(since), min(since.values())])
    return [(pack, session, via) for pack, session, via in found]


def _sessions_given_packs(packs: list[tuple[int, str, int]]) -> dict[str, int]:
    sessions: dict[str, int] = {}
    for pack, session, _ in packs:
        if session:
            sessions.setdefault(session, pack)
    return sessions


def _by_id(sessions: Mapping[str, int]) -> list[tuple[int, int]]:
    ids = session_ids(sessions)
    return sorted((ids[name], pack) for name, pack in sessions.items() if name in ids)


def _influenced(sessions: Mapping[str, int], known: set[int]) -> list[Derived]:
    types = names_where(lambda kind: kind.rollback.thing and kind.rollback.treatment is Treatment.SET_ASIDE)
    found = rows.fetch(_INFLUENCED, [json.dumps(sessions), json.dumps(types), listed(known)])
    return [Derived(position, position, pack, "may have been influenced by") for position, pack in found]


# Groups that no event type declares: one is worked out from revisions, the other has the events of no group.
_WORKED_OUT = (
    Rollback(Treatment.SET_ASIDE, "conflicts", "Conflicts opened", 60, follows_stream=True),
    Rollback(Treatment.STAYS, "other", "Other events", 1000, can_leave=False),
)


def groups() -> dict[str, Rollback]:
    every = {**rollback_groups(), **{rule.group: rule for rule in _WORKED_OUT}}
    return dict(sorted(every.items(), key=lambda pair: pair[1].order))


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


def touched_by(selected: Selected) -> Direct:
    found: dict[str, dict[int, Touched]] = {name: {} for name in groups()}
    for header in selected.headers:
        known = event_type(header.type)
        if known is None or not known.rollback.group:
            _add(found["other"], header.position, header.position)
        elif known.rollback.group not in _LOOKED_UP:
            changed = known.rollback.treatment is Treatment.REVERSED and header.entity
            _add(found[known.rollback.group], changed or header.position, header.position)
    for group, look_up in _LOOKED_UP.items():
        look_up(found, selected.of(*types_in_group(group)))
    return found


def _add(group: dict[int, Touched], thing: int, position: int) -> None:
    group.setdefault(thing, Touched(thing)).events.append(position)


def _add_revised(found: dict[str, dict[int, Touched]], events: list[Header]) -> None:
    versions = rows.fetch(
        "SELECT id, memory_id, version, conflicts_with IS NOT NULL FROM memories_memoryversion "
        f"WHERE id IN {IDS} ORDER BY id",
        [listed(header.position for header in events)],
    )
    created = found["memories_created"]
    for position, memory_id, version, is_conflict in versions:
        group = created if memory_id in created else found["memories_revised"]
        _add(group, memory_id, position)
        group[memory_id].versions.append(version)
        if is_conflict:
            _add(found["conflicts"], position, position)


# A session's row shows its purpose and summary, which the events that start and end it contain
def _add_sessions(found: dict[str, dict[int, Touched]], events: list[Header]) -> None:
    ids = session_ids({header.stream.partition(":")[2] for header in events})
    for header in events:
        session = ids.get(header.stream.partition(":")[2])
        _add(found["sessions" if session else "other"], session or header.position, header.position)
    for memory_id, position in discarded_by(header.position for header in events):
        _add(found["memories_deleted"], memory_id, position)


# A turn's row shows its summary, which the event that ends it contains
def _add_turns(found: dict[str, dict[int, Touched]], events: list[Header]) -> None:
    turns = rows.fetch(
        f"SELECT e.position, t.id FROM {int_elements()} p JOIN raw_events e ON e.position = p.value "
        "JOIN sessions_app_turn t ON t.session_id = e.session_id AND t.turn_id = e.turn_id ORDER BY e.position",
        [listed(header.position for header in events)],
    )
    for position, turn in turns:
        _add(found["turns"], turn, position)


# Groups whose things have other ids than the events or their streams.
_LOOKED_UP = {"memories_revised": _add_revised, "sessions": _add_sessions, "turns": _add_turns}


def session_ids(names: Iterable[str]) -> dict[str, int]:
    found = rows.fetch(
        f"SELECT session_id, id FROM sessions_app_session WHERE session_id IN {TEXTS}",
        [json.dumps(sorted(names))],
    )
    return dict(found)


def in_groups(direct: Direct, wanted: Callable[[str], bool]) -> list[Touched]:
    return [thing for name, group in direct.items() if wanted(name) for thing in group.values()]
