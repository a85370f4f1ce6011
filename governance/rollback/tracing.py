"""What a selection did and what came of it, as every door shows it: bounded lists, true counts."""

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

# When each relation that says the same as one of these was made, and when it was removed.
_CHANGES = f"""
WITH said AS (
    SELECT position, actor, {json_int("payload_json", "source_id")} AS source,
        {json_int("payload_json", "target_id")} AS target, {json_text("payload_json", "relation")} AS relation
    FROM raw_events WHERE event_type = '{RELATION_CREATED.name}' AND payload_json IS NOT NULL
),
same AS MATERIALIZED (
    SELECT s.* FROM said s JOIN said w ON s.relation = w.relation AND (
            s.source = w.source AND s.target = w.target
            OR s.source = w.target AND s.target = w.source AND s.relation IN {TEXTS}
        )
        WHERE w.position IN {IDS} GROUP BY s.position
)
SELECT position, actor, 1, position, source, target, relation FROM same
    WHERE position NOT IN (SELECT id FROM quarantine)
UNION ALL SELECT e.position, e.actor, 0, s.position, s.source, s.target, s.relation FROM same s
    JOIN raw_events e ON e.stream_id = 'relation:' || s.position AND e.event_type = '{RELATION_DELETED.name}'
ORDER BY 1
"""

Statement = tuple[str, int, int]


class Change(NamedTuple):
    """A relation was made, or removed."""

    position: int
    actor: str
    made: bool
    relation_id: int


@dataclass(frozen=True, slots=True)
class RelationReversal:
    """The steps that make relations again which some events removed.

    A relation that is made again has a new id: what counts is what it says.
    """

    rolled_back: Collection[int]
    void: Collection[int]
    going: Collection[int]
    """Ids of relations that the plan sets aside."""
    include_changed: bool
    """Whether to undo what others changed since, too."""

    def parts(self, removed: Iterable[int]) -> Iterator[Step | Left]:
        """Yield a step for each relation to make again, and what is left."""
        wanted = set(removed)
        histories = self._histories(wanted)
        known = {change.relation_id for every in histories.values() for change in every}
        yield from (Left(id=each, title="Relation", why="erased since") for each in wanted - known)
        decided = [self._decided(changes) for changes in histories.values()]
        yield from (each for each in decided if isinstance(each, Left))
        yield from self._possible([each for each in decided if isinstance(each, int)])

    def _histories(self, wanted: set[int]) -> dict[Statement, list[Change]]:
        histories: dict[Statement, list[Change]] = {}
        found = rows.fetch(_CHANGES, [json.dumps(sorted(SYMMETRIC)), listed(wanted)])
        for position, actor, is_made, relation_id, source, target, relation in found:
            if position not in self.void:
                change = Change(position, actor, bool(is_made), relation_id)
                histories.setdefault(statement(relation, source, target), []).append(change)
        return histories

    def _decided(self, changes: list[Change]) -> int | Left | None:
        """Return which relation is to be there, or why that is left; None where none is to be."""
        last = changes[-1]
        removed = next((each.relation_id for each in changes if each.position in self.rolled_back and not each.made), 0)
        if not removed:
            return None
        is_changed = last.position not in self.rolled_back
        if is_changed and not self.include_changed:
            return Left(id=removed, title="Relation", why=f"changed since by {last.actor} at #{last.position}")
        counting = takewhile(lambda each: each.position not in self.rolled_back, changes) if is_changed else changes
        kept = [each for each in counting if each.position not in self.rolled_back]
        return kept[-1].relation_id if kept and kept[-1].made else None

    def _possible(self, wanted: Sequence[int]) -> Iterator[Step | Left]:
        """Yield steps for those that can be there, the latest first, and what is left."""
        made = relations_as_made(wanted)
        ends = set(find_entities(end for each in made.values() for end in (each.source_id, each.target_id)))
        present = [
            row[1:]
            for row in Relation.objects.values_list("id", "relation", "source_id", "target_id")
            if row[0] not in self.going
        ]
        said = {statement(*each) for each in present}
        for each in sorted(made, reverse=True):
            row = (made[each].relation, made[each].source_id, made[each].target_id)
            if not set(row[1:]) <= ends:
                yield Left(id=each, title="Relation", why="one of its ends is not there any more")
            elif statement(*row) in said:
                continue
            elif _closes_circle(row, present):
                yield Left(id=each, title="Relation", why="it would close a circle with relations made since")
            else:
                present.append(row)
                yield Step(do="relate", id=each)


def plan_relations(reach: Reach) -> Iterator[Step | Left]:
    """Yield what makes relations again that the selection removed."""
    reversal = RelationReversal(reach.rolled_back, reach.void, reach.going, reach.include_changed)
    yield from reversal.parts(reach.things[RELATION_DELETED.rollback.group])


def _closes_circle(row: Statement, present: Sequence[Statement]) -> bool:
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
    """Return what the events of a selection did, and what was derived from it, as it stands now."""
    return view_trace(traced(selection))


def view_trace(found: Traced) -> Trace:
    """Return what was traced as every door shows it."""
    headers = found.selected.headers
    things = _Things(found)
    return Trace(
        events=len(headers),
        first=headers[0].position if headers else None,
        last=headers[-1].position if headers else None,
        sessions=list(dict.fromkeys(each.session for each in headers if each.session))[:_SESSIONS],
        direct=[things.direct(name) for name, group in found.direct.items() if group],
        derived=[things.derived(name) for name, group in found.aftermath.groups.items() if group],
    )


def shown_plan(command: RollbackPlan, plan: Plan, trace: Trace, token: str) -> Preview:
    """Return a plan as every door shows it."""
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
    """The things that are shown, with what is told of them: fetched once for all."""

    def __init__(self, found: Traced) -> None:
        self._found = found
        touched = [each for group in found.direct.values() for each in _first(group.values())]
        made = [each for group in found.aftermath.groups.values() for each in _first(group)]
        ids = {each.id for each in touched} | {each.id for each in made}
        positions = {*(each.first for each in touched), *(each.event for each in made)}
        self._entities = find_entities(ids)
        self._marks = quarantine_marks(ids)
        events = list(RawEvent.objects.filter(position__in=positions))
        self._entries: dict[int, Entry] = {each.position: each for each in entries_of(events)}
        streams = {_stream(kind, each.id): each.first for kind, each in self._changeable()}
        self._changed = changed_since(streams, found.selected.positions, void_positions())

    def _changeable(self) -> Iterable[tuple[str, Touched]]:
        for name, rule in direct.groups().items():
            if rule.thing and rule.is_hidden:
                yield from ((rule.thing, each) for each in _first(self._found.direct[name].values()))

    def direct(self, name: str) -> Group:
        """Return a group of what the selection did."""
        group = self._found.direct[name]
        shown = [self._touched(name, each) for each in _first(group.values())]
        return Group(name=name, title=direct.groups()[name].title, count=len(group), shown=shown)

    def derived(self, name: str) -> Group:
        """Return a group of what came of it."""
        group = self._found.aftermath.groups[name]
        shown = [self._derived(each) for each in _first(group)]
        return Group(name=name, title=derived.GROUPS[name], count=len(group), shown=shown)

    def _touched(self, name: str, each: Touched) -> Thing:
        kind = direct.groups()[name].thing or self._type(each.id, each.first)
        return Thing(
            id=each.id,
            type=kind,
            title=self._title(each.id, each.first),
            event=each.first,
            events=len(each.events),
            versions=each.versions,
            changed_since=self._changed.get(_stream(kind, each.id), ""),
            quarantined=self._marks.get(each.id, ""),
        )

    def _derived(self, each: Derived) -> Thing:
        return Thing(
            id=each.id,
            type=self._type(each.id, each.event),
            title=self._title(each.id, each.event),
            event=each.event,
            via=each.via,
            how=each.how,
            depth=each.depth,
            quarantined=self._marks.get(each.id, ""),
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
