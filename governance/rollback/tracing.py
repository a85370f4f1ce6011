"""A trace or plan as callers get it: bounded lists, exact counts."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import NamedTuple, TypeVar

from governance.rollback import downstream as derived
from governance.rollback import effects as direct
from governance.rollback.downstream import Derived
from governance.rollback.effects import Touched
from governance.rollback.execute import relations_as_made
from governance.rollback.plan import Plan, Traced, traced
from governance.rollback.schemas import SHOWN, Group, Preview, RollbackPlan, Selection, Thing, Trace
from governance.rollback.selectors import listed
from governance.rollback.state import changed_since
from governance.rollback.undone import void_positions
from memories.events import RELATION_CREATED, RELATION_DELETED
from memories.models import Relation
from memories.models.link import ACYCLIC, SYMMETRIC, statement
from memoryhub.core.entities import Entity, find_entities
from memoryhub.core.events.rollback import Left, Reach, Step
from memoryhub.core.log.quarantine import quarantine_marks
from memoryhub.core.models import RawEvent
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS, TEXTS, json_int, json_text
from sessions_app.timeline import Entry, entries_of

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
        self._entries: dict[int, Entry] = {entry.position: entry for entry in entries_of(events)}
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
            return "#{source_id} {relation} #{target_id}".format_map(entry.rest)
        return entry.title or entry.type


def _first(things: Iterable[T]) -> list[T]:
    return list(islice(things, SHOWN))


def _stream(kind: str, thing: int) -> str:
    return f"{kind}:{thing}"
