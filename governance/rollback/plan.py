"""Plan a roll-back, and show its trace: what it would do to each item, and what it would leave. Nothing is written."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice, takewhile
from typing import NamedTuple, TypeVar

from django.db.models import Count, Max

from governance.models import RollbackAction
from governance.rollback import downstream as derived
from governance.rollback import downstream as direct
from governance.rollback.downstream import (
    Derived,
    Direct,
    Downstream,
    Touched,
    find_downstream,
    groups,
    in_groups,
    touched_by,
)
from governance.rollback.reversal import memory_groups, plan_values, relations_as_made
from governance.rollback.schemas import SHOWN, Group, Include, Preview, RollbackPlan, Selection, Thing, Trace
from governance.rollback.selectors import Selected, changed_since, listed, promoted_by, select, void_positions
from memories.events import RELATION_CREATED, RELATION_DELETED
from memories.models import ACYCLIC, SYMMETRIC, Conflict, Relation, statement
from memoryhub.core.entities import Entity, find_entities
from memoryhub.core.errors import Invalid
from memoryhub.core.events.event_types import event_type, types_that_change_streams
from memoryhub.core.events.rollback import Left, Reach, Rollback, Step, Treatment, effects
from memoryhub.core.log.quarantine import quarantine_marks, quarantined_among
from memoryhub.core.models import RawEvent
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS, TEXTS, json_int, json_text
from sessions_app.events import SESSION_ENDED
from sessions_app.timeline import TimelineItem, entries_of

MAX_SESSIONS = 200
MAX_ACTORS = 100


@dataclass(frozen=True, slots=True)
class Source:
    name: str
    events: int
    # Time of its last event; ISO 8601
    last: str


@dataclass(frozen=True, slots=True)
class Sources:
    sessions: list[Source]
    actors: list[Source]
    doors: list[Source]


def sources() -> Sources:
    return Sources(_of("session_id", MAX_SESSIONS), _of("actor", MAX_ACTORS), _of("source", MAX_ACTORS))


def _of(column: str, most: int) -> list[Source]:
    named = RawEvent.objects.exclude(**{column: ""}).values_list(column)
    found = named.annotate(events=Count("*"), last=Max("occurred_at")).order_by("-last")[:most]
    return [Source(*row) for row in found]


_UNKNOWN = "this version can't roll back events of this type; they stay in force"


@dataclass(frozen=True, slots=True)
class Traced:
    selected: Selected
    direct: Direct
    downstream: Downstream


@dataclass(frozen=True, slots=True)
class Plan:
    steps: list[Step]
    left: list[Left]

    @property
    def counts(self) -> dict[str, int]:
        return dict(Counter(step.do for step in self.steps))


def traced(selection: Selection) -> Traced:
    selected = select(selection)
    direct = touched_by(selected)
    return Traced(selected, direct, find_downstream(direct, selected))


def planned(command: RollbackPlan, found: Traced) -> Plan:
    return sorted_plan(_Planner(command, found).parts())


def sorted_plan(parts: Iterable[Step | Left]) -> Plan:
    both = list(parts)
    steps = [part for part in both if isinstance(part, Step)]
    left = [part for part in both if isinstance(part, Left)]
    order = list(effects())
    steps.sort(key=lambda step: (order.index(step.do), step.id, step.name))
    return Plan(steps, sorted(left, key=lambda item: (item.id, item.why, item.title)))


# A digest of the request and the plan, so a changed store has another token
def token_of(command: RollbackPlan, plan: Plan) -> str:
    request = {
        "asked": command.model_dump(mode="json", include=set(RollbackPlan.model_fields)),
        "steps": [step.model_dump(mode="json") for step in plan.steps],
        "left": [left.model_dump(mode="json") for left in plan.left],
    }
    return hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()[:16]


class _Planner:
    def __init__(self, command: RollbackPlan, found: Traced) -> None:
        self._command = command
        self._found = found
        self._direct = found.direct
        self._groups = groups()
        self._undo = command.action is RollbackAction.UNDO
        self._include_changed = Include.CHANGED_SINCE in command.include
        self._leave = set(command.leave)
        self._rolled_back = found.selected.positions - self._events_left()
        self._void = void_positions() - found.selected.positions
        self._firsts = self._first_events()
        self._changed = changed_since(self._until(), found.selected.positions, self._void)
        self._aside = quarantined_among(sorted(thing.id for thing in in_groups(self._direct, lambda _: True)))

    def parts(self) -> Iterator[Step | Left]:
        setting_aside = {*self._to_set_aside(), *self._derived_chosen()} - self._leave
        known = quarantined_among(sorted(setting_aside))
        yield from (Step(do="quarantine", id=thing_id) for thing_id in setting_aside - known)
        yield from (Left(id=thing_id, why="already in quarantine") for thing_id in known)
        yield from (Left(id=thing_id, why="excluded by the request") for thing_id in self._leave)
        yield from self._changed_by_others()
        yield from self._undone(setting_aside) if self._undo else self._out_of_reach()
        yield from self._in_force()

    # Events of excluded items count as if others had caused them
    def _events_left(self) -> set[int]:
        return {
            event
            for thing in in_groups(self._direct, lambda _: True)
            if thing.id in self._leave
            for event in thing.events
        }

    # The first rolled-back change of each stream that others may have changed since
    def _first_events(self) -> dict[str, int]:
        firsts: dict[str, int] = {}
        for header in self._found.selected.of(*types_that_change_streams()):
            if header.stream.startswith(("memory:", "decision:")):
                firsts.setdefault(header.stream, header.position)
        for memory in self._direct[
            "memories_deleted"
        ].values():  # deleted by the end of a session, which is in another stream
            firsts[f"memory:{memory.id}"] = min(memory.first, firsts.get(f"memory:{memory.id}", memory.first))
        return firsts

    # The position in each stream after which a change by others counts
    def _until(self) -> dict[str, int]:
        ends = {f"memory:{memory.id}": memory.events[-1] for memory in self._direct["memories_deleted"].values()}
        return {stream: max(first, ends.get(stream, 0)) for stream, first in self._firsts.items()}

    def _reaches(self, stream: str) -> bool:
        return self._include_changed or stream not in self._changed

    def _to_set_aside(self) -> Iterator[int]:
        for name, rule in self._groups.items():
            if not (rule.treatment is Treatment.SET_ASIDE and not rule.by if self._undo else rule.is_hidden):
                continue
            for thing_id in self._direct[name]:
                stream = self._stream(rule, thing_id)
                if not stream or (self._reaches(stream) and int(stream.partition(":")[2]) not in self._leave):
                    yield thing_id
        if self._undo:
            yield from self._conflicts_of_others()

    # Conflicts that others opened with versions that are undone too
    def _conflicts_of_others(self) -> Iterator[int]:
        reached = {
            memory_id
            for memory_id in self._memories()
            if f"memory:{memory_id}" in self._changed and self._include_changed
        }
        for conflict_id, memory_id in Conflict.objects.filter(memory_id__in=reached).values_list("id", "memory_id"):
            if conflict_id > self._firsts[f"memory:{memory_id}"]:
                yield conflict_id

    def _memories(self) -> set[int]:
        return {thing_id for name in memory_groups() for thing_id in self._direct[name]} - self._leave

    # The stream whose later changes protect an item; "" if there is none
    def _stream(self, rule: Rollback, thing: int) -> str:
        if rule.follows_stream:
            return self._found.selected.streams[thing]
        return f"{rule.thing}:{thing}" if rule.thing and rule.is_hidden else ""

    def _derived_chosen(self) -> set[int]:
        downstream, include = self._found.downstream, self._command.include
        chosen = set(self._command.also)
        unknown = chosen - downstream.ids("built_on", "relations", "told_sessions", "influenced")
        if unknown:
            raise Invalid(f"'also': #{min(unknown)} is not downstream of the selection; use ids that the preview lists")
        chosen |= downstream.ids("built_on") if Include.BUILT_ON in include else set()
        chosen |= downstream.ids("influenced") if Include.INFLUENCED in include else set()
        return chosen

    def _changed_by_others(self) -> Iterator[Left]:
        protected = [name for name, rule in self._groups.items() if rule.thing and rule.is_hidden]
        names = {*protected, *(memory_groups() if self._undo else ())}
        streams = {f"{self._groups[name].thing}:{thing_id}" for name in names for thing_id in self._direct[name]}
        for stream in streams:
            thing = int(stream.partition(":")[2])
            if thing not in self._leave and not self._reaches(stream):
                yield Left(id=thing, why=self._changed[stream])

    def _out_of_reach(self) -> Iterator[Left]:
        hidden = [name for name, rule in self._groups.items() if rule.thing and rule.is_hidden]
        whole = {thing_id for name in hidden for thing_id in self._direct[name]}
        for name, rule in self._groups.items():
            for thing_id in self._direct[name] if rule.treatment is Treatment.REVERSED else ():
                if thing_id not in whole and thing_id not in self._leave:
                    yield Left(
                        id=thing_id, title=rule.title, why="a change, which can't be quarantined; undo reverses it"
                    )

    # Events that stay in force, with the reason that their type declares (decision 35)
    def _in_force(self) -> Iterator[Left]:
        others = self._direct["other"]
        counts = Counter(header.type for header in self._found.selected.headers if header.position in others)
        for name, count in counts.items():
            known = event_type(name)
            yield Left(title=f"{count} × {name}", why=known.rollback.why if known else _UNKNOWN)
        promoted = promoted_by(header.position for header in self._found.selected.of(SESSION_ENDED.name))
        for memory_id in promoted - set(self._direct["memories_created"]) - self._leave:
            yield Left(id=memory_id, why="kept at the end of its scratch session; stays kept")

    def _undone(self, setting_aside: set[int]) -> Iterator[Step | Left]:
        reach = Reach(
            things={name: set(group) - self._leave for name, group in self._direct.items()},
            rolled_back=self._rolled_back,
            void=self._void,
            going=setting_aside,
            aside=self._aside,
            firsts=self._firsts,
            changed=self._changed,
            include_changed=self._include_changed,
        )
        known = effects()
        by = dict.fromkeys(rule.by for name, rule in self._groups.items() if rule.by and reach.things[name])
        for plan in dict.fromkeys(known[name].plan or partial(plan_values, known[name]) for name in by):
            yield from plan(reach)


# When each relation equal to one of these in ends and type was created and removed
_CHANGES = f"""
WITH stated AS (
    SELECT position, actor, {json_int("payload_json", "source_id")} AS source,
        {json_int("payload_json", "target_id")} AS target, {json_text("payload_json", "relation")} AS relation
    FROM raw_events WHERE event_type = '{RELATION_CREATED.name}' AND payload_json IS NOT NULL
),
same AS MATERIALIZED (
    SELECT DISTINCT s.* FROM stated s JOIN stated w ON s.relation = w.relation AND (
            s.source = w.source AND s.target = w.target
            OR s.source = w.target AND s.target = w.source AND s.relation IN {TEXTS}
        )
        WHERE w.position IN {IDS}
)
SELECT position, actor, 1, position, source, target, relation FROM same
    WHERE position NOT IN (SELECT id FROM quarantine)
UNION ALL SELECT e.position, e.actor, 0, s.position, s.source, s.target, s.relation FROM same s
    JOIN raw_events e ON e.stream_id = 'relation:' || s.position AND e.event_type = '{RELATION_DELETED.name}'
ORDER BY 1
"""

Statement = tuple[str, int, int]


class Change(NamedTuple):
    position: int
    actor: str
    made: bool
    relation_id: int


# Recreates relations that rolled-back events removed. A recreated relation has a new id, so its source, target and
# type are compared (decision 35).
@dataclass(frozen=True, slots=True)
class RelationReversal:
    rolled_back: Collection[int]
    void: Collection[int]
    # Ids of relations that the plan quarantines
    going: Collection[int]
    # Also undo what others changed since
    include_changed: bool

    def parts(self, removed: Iterable[int]) -> Iterator[Step | Left]:
        wanted = set(removed)
        histories = self._histories(wanted)
        known = {change.relation_id for changes in histories.values() for change in changes}
        yield from (Left(id=relation_id, title="Relation", why="erased since") for relation_id in wanted - known)
        decided = [self._decided(changes) for changes in histories.values()]
        yield from (part for part in decided if isinstance(part, Left))
        yield from self._possible([part for part in decided if isinstance(part, int)])

    def _histories(self, wanted: set[int]) -> dict[Statement, list[Change]]:
        histories: dict[Statement, list[Change]] = {}
        found = rows.fetch(_CHANGES, [json.dumps(sorted(SYMMETRIC)), listed(wanted)])
        for position, actor, is_made, relation_id, source, target, relation in found:
            if position not in self.void:
                change = Change(position, actor, bool(is_made), relation_id)
                histories.setdefault(statement(relation, source, target), []).append(change)
        return histories

    # The relation to recreate, why not, or None if there should be none
    def _decided(self, changes: list[Change]) -> int | Left | None:
        last = changes[-1]
        removed = next(
            (change.relation_id for change in changes if change.position in self.rolled_back and not change.made), 0
        )
        if not removed:
            return None
        is_changed = last.position not in self.rolled_back
        if is_changed and not self.include_changed:
            return Left(id=removed, title="Relation", why=f"changed since by {last.actor} at #{last.position}")
        counting = takewhile(lambda change: change.position not in self.rolled_back, changes) if is_changed else changes
        kept = [change for change in counting if change.position not in self.rolled_back]
        return kept[-1].relation_id if kept and kept[-1].made else None

    def _possible(self, wanted: Sequence[int]) -> Iterator[Step | Left]:
        made = relations_as_made(wanted)
        ends = set(find_entities(end for relation in made.values() for end in (relation.source_id, relation.target_id)))
        present = [
            row[1:]
            for row in Relation.objects.values_list("id", "relation", "source_id", "target_id")
            if row[0] not in self.going
        ]
        existing = {statement(*row) for row in present}
        for relation_id in sorted(made, reverse=True):
            row = (made[relation_id].relation, made[relation_id].source_id, made[relation_id].target_id)
            if not set(row[1:]) <= ends:
                yield Left(id=relation_id, title="Relation", why="one of its ends no longer exists")
            elif statement(*row) in existing:
                continue
            elif _closes_cycle(row, present):
                yield Left(id=relation_id, title="Relation", why="it would close a cycle with newer relations")
            else:
                present.append(row)
                yield Step(do="relate", id=relation_id)


def plan_relations(reach: Reach) -> Iterator[Step | Left]:
    reversal = RelationReversal(reach.rolled_back, reach.void, reach.going, reach.include_changed)
    yield from reversal.parts(reach.things[RELATION_DELETED.rollback.group])


def _closes_cycle(row: Statement, present: Sequence[Statement]) -> bool:
    relation, source, target = row
    if relation not in ACYCLIC:
        return False
    reached, waiting = {target}, [target]
    while waiting:
        here = waiting.pop()
        further = {end for name, start, end in present if name == relation and start == here} - reached
        reached |= further
        waiting += further
    return source in reached


T = TypeVar("T")

_SESSIONS = 20


def trace_downstream(*, selection: Selection) -> Trace:
    return view_trace(traced(selection))


def view_trace(found: Traced) -> Trace:
    headers = found.selected.headers
    things = _Things(found)
    return Trace(
        events=len(headers),
        first=headers[0].position if headers else None,
        last=headers[-1].position if headers else None,
        sessions=list(dict.fromkeys(header.session for header in headers if header.session))[:_SESSIONS],
        direct=[things.direct(name) for name, group in found.direct.items() if group],
        derived=[things.derived(name) for name, group in found.downstream.groups.items() if group],
    )


def shown_plan(command: RollbackPlan, plan: Plan, trace: Trace, token: str) -> Preview:
    return Preview(
        trace=trace,
        action=command.action,
        counts=plan.counts,
        steps=plan.steps[:SHOWN],
        left=plan.left[:SHOWN],
        left_count=len(plan.left),
        confirm_token=token,
    )


class _Things:
    def __init__(self, found: Traced) -> None:
        self._found = found
        touched = [thing for group in found.direct.values() for thing in _first(group.values())]
        made = [thing for group in found.downstream.groups.values() for thing in _first(group)]
        ids = {thing.id for thing in touched} | {thing.id for thing in made}
        positions = {*(thing.first for thing in touched), *(thing.event for thing in made)}
        self._entities = find_entities(ids)
        self._marks = quarantine_marks(ids)
        events = list(RawEvent.objects.filter(position__in=positions))
        self._entries: dict[int, TimelineItem] = {entry.position: entry for entry in entries_of(events)}
        streams = {_stream(kind, thing.id): thing.first for kind, thing in self._changeable()}
        self._changed = changed_since(streams, found.selected.positions, void_positions())

    def _changeable(self) -> Iterable[tuple[str, Touched]]:
        for name, rule in direct.groups().items():
            if rule.thing and rule.is_hidden:
                yield from ((rule.thing, thing) for thing in _first(self._found.direct[name].values()))

    def direct(self, name: str) -> Group:
        group = self._found.direct[name]
        shown = [self._touched(name, thing) for thing in _first(group.values())]
        return Group(name=name, title=direct.groups()[name].title, count=len(group), shown=shown)

    def derived(self, name: str) -> Group:
        group = self._found.downstream.groups[name]
        shown = [self._derived(thing) for thing in _first(group)]
        return Group(name=name, title=derived.GROUPS[name], count=len(group), shown=shown)

    def _touched(self, name: str, thing: Touched) -> Thing:
        kind = direct.groups()[name].thing or self._type(thing.id, thing.first)
        return Thing(
            id=thing.id,
            type=kind,
            title=self._title(thing.id, thing.first),
            event=thing.first,
            events=len(thing.events),
            versions=thing.versions,
            changed_since=self._changed.get(_stream(kind, thing.id), ""),
            quarantined=self._marks.get(thing.id, ""),
        )

    def _derived(self, thing: Derived) -> Thing:
        return Thing(
            id=thing.id,
            type=self._type(thing.id, thing.event),
            title=self._title(thing.id, thing.event),
            event=thing.event,
            via=thing.via,
            how=thing.how,
            depth=thing.depth,
            quarantined=self._marks.get(thing.id, ""),
        )

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


def _stream(kind: str, thing: int) -> str:
    return f"{kind}:{thing}"
