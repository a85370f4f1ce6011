"""What a selection did and what came of it, as every door shows it: bounded lists, true counts."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import TypeVar

from governance.taint import derived, direct
from governance.taint.derived import Derived
from governance.taint.direct import Touched
from governance.taint.plan import Plan, Traced, traced
from governance.taint.schemas import SHOWN, Group, Preview, RollbackPlan, Selection, Thing, Trace
from governance.taint.standing import changed_since
from governance.taint.undone import void_positions
from memories.events import RELATION_CREATED
from memoryhub.core.entities import Entity, find_entities
from memoryhub.core.models import RawEvent
from memoryhub.core.quarantine import quarantine_marks
from sessions_app.timeline import Entry, entries_of

T = TypeVar("T")

_SESSIONS = 20


def trace_taint(*, selection: Selection) -> Trace:
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
