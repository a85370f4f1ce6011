"""Plan a roll-back: what it would do to each item, and what it would leave. Nothing is written."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from django.db.models import Count, Max

from governance.models import RollbackAction
from governance.rollback.changes import memory_groups, plan_values
from governance.rollback.downstream import Downstream, find_downstream
from governance.rollback.effects import Direct, groups, in_groups, touched_by
from governance.rollback.schemas import Include, RollbackPlan, Selection
from governance.rollback.selectors import Selected, select
from governance.rollback.state import changed_since, promoted_by
from governance.rollback.undone import void_positions
from memories.models import Conflict
from memoryhub.core.errors import Invalid
from memoryhub.core.events.event_types import event_type, types_that_change_streams
from memoryhub.core.events.rollback import Left, Reach, Rollback, Step, Treatment, effects
from memoryhub.core.log.quarantine import quarantined_among
from memoryhub.core.models import RawEvent
from sessions_app.events import SESSION_ENDED

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
