"""What a roll-back would do, thing by thing, and what it would leave as it is. Nothing is written here."""

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
from governance.rollback.downstream import Aftermath, derived_from
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
    """A session, a client or a door."""

    name: str
    events: int
    last: str
    """When its last event happened; ISO 8601."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Those that a store has events of, the latest first."""

    sessions: list[Source]
    actors: list[Source]
    doors: list[Source]


def sources() -> Sources:
    """Return the sessions, the clients and the doors that events came from."""
    return Sources(_of("session_id", MAX_SESSIONS), _of("actor", MAX_ACTORS), _of("source", MAX_ACTORS))


def _of(column: str, most: int) -> list[Source]:
    named = RawEvent.objects.exclude(**{column: ""}).values_list(column)
    found = named.annotate(events=Count("*"), last=Max("occurred_at")).order_by("-last")[:most]
    return [Source(*row) for row in found]


_UNKNOWN = "this version does not know how to roll back events of this type; they stay in force"


@dataclass(frozen=True, slots=True)
class Traced:
    """What a selection did and what came of it."""

    selected: Selected
    direct: Direct
    aftermath: Aftermath


@dataclass(frozen=True, slots=True)
class Plan:
    """What would be done, in the order in which it is done, and what would be left."""

    steps: list[Step]
    left: list[Left]

    @property
    def counts(self) -> dict[str, int]:
        """How many steps of each kind there are."""
        return dict(Counter(step.do for step in self.steps))


def traced(selection: Selection) -> Traced:
    """Return what a selection did and what came of it, as it stands now."""
    selected = select(selection)
    direct = touched_by(selected)
    return Traced(selected, direct, derived_from(direct, selected))


def planned(command: RollbackPlan, found: Traced) -> Plan:
    """Return what a roll-back would do now.

    Raises:
        Invalid: one of ``also`` is nothing that was derived.
    """
    return sorted_plan(_Planner(command, found).parts())


def sorted_plan(parts: Iterable[Step | Left]) -> Plan:
    """Return steps in the order in which they are done, and what is left, by id."""
    both = list(parts)
    steps = [each for each in both if isinstance(each, Step)]
    left = [each for each in both if isinstance(each, Left)]
    order = list(effects())
    steps.sort(key=lambda step: (order.index(step.do), step.id, step.name))
    return Plan(steps, sorted(left, key=lambda each: (each.id, each.why, each.title)))


def token_of(command: RollbackPlan, plan: Plan) -> str:
    """Return the token of a plan: that of any other, or of a changed store, is another."""
    said = {
        "asked": command.model_dump(mode="json", include=set(RollbackPlan.model_fields)),
        "steps": [step.model_dump(mode="json") for step in plan.steps],
        "left": [each.model_dump(mode="json") for each in plan.left],
    }
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:16]


class _Planner:
    """The steps of one roll-back, group by group."""

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
        self._aside = quarantined_among(sorted(each.id for each in in_groups(self._direct, lambda _: True)))

    def parts(self) -> Iterator[Step | Left]:
        """Yield every step, and everything that is left."""
        setting_aside = {*self._to_set_aside(), *self._derived_chosen()} - self._leave
        known = quarantined_among(sorted(setting_aside))
        yield from (Step(do="quarantine", id=each) for each in setting_aside - known)
        yield from (Left(id=each, why="in quarantine already") for each in known)
        yield from (Left(id=each, why="left by choice") for each in self._leave)
        yield from self._changed_by_others()
        yield from self._undone(setting_aside) if self._undo else self._out_of_reach()
        yield from self._in_force()

    def _events_left(self) -> set[int]:
        """Return the events of the things that are left by choice: they count as if others had caused them."""
        return {
            event for each in in_groups(self._direct, lambda _: True) if each.id in self._leave for event in each.events
        }

    def _first_events(self) -> dict[str, int]:
        """Return the first rolled-back change of each stream that others may have changed since."""
        firsts: dict[str, int] = {}
        for header in self._found.selected.of(*types_that_change_streams()):
            if header.stream.startswith(("memory:", "decision:")):
                firsts.setdefault(header.stream, header.position)
        for each in self._direct["memories_deleted"].values():  # by the end of a session, which has another stream
            firsts[f"memory:{each.id}"] = min(each.first, firsts.get(f"memory:{each.id}", each.first))
        return firsts

    def _until(self) -> dict[str, int]:
        """Return the position of each stream behind which a change by others counts."""
        ends = {f"memory:{each.id}": each.events[-1] for each in self._direct["memories_deleted"].values()}
        return {stream: max(first, ends.get(stream, 0)) for stream, first in self._firsts.items()}

    def _reaches(self, stream: str) -> bool:
        return self._include_changed or stream not in self._changed

    def _to_set_aside(self) -> Iterator[int]:
        """Yield the ids of what the selection made, unless it is left."""
        for name, rule in self._groups.items():
            if not (rule.treatment is Treatment.SET_ASIDE and not rule.by if self._undo else rule.is_hidden):
                continue
            for each in self._direct[name]:
                stream = self._stream(rule, each)
                if not stream or (self._reaches(stream) and int(stream.partition(":")[2]) not in self._leave):
                    yield each
        if self._undo:
            yield from self._conflicts_of_others()

    def _conflicts_of_others(self) -> Iterator[int]:
        """Yield the conflicts that others opened with versions that are undone too."""
        reached = {each for each in self._memories() if f"memory:{each}" in self._changed and self._include_changed}
        for each, memory_id in Conflict.objects.filter(memory_id__in=reached).values_list("id", "memory_id"):
            if each > self._firsts[f"memory:{memory_id}"]:
                yield each

    def _memories(self) -> set[int]:
        return {each for name in memory_groups() for each in self._direct[name]} - self._leave

    def _stream(self, rule: Rollback, thing: int) -> str:
        """Return the stream whose later changes protect a thing; "" where nothing does."""
        if rule.follows_stream:
            return self._found.selected.streams[thing]
        return f"{rule.thing}:{thing}" if rule.thing and rule.is_hidden else ""

    def _derived_chosen(self) -> set[int]:
        aftermath, include = self._found.aftermath, self._command.include
        chosen = set(self._command.also)
        strange = chosen - aftermath.ids("built_on", "relations", "told_sessions", "influenced")
        if strange:
            raise Invalid(f"'also': #{min(strange)} is nothing that was derived; the preview lists what was")
        chosen |= aftermath.ids("built_on") if Include.BUILT_ON in include else set()
        chosen |= aftermath.ids("influenced") if Include.INFLUENCED in include else set()
        return chosen

    def _changed_by_others(self) -> Iterator[Left]:
        protected = [name for name, rule in self._groups.items() if rule.thing and rule.is_hidden]
        names = {*protected, *(memory_groups() if self._undo else ())}
        streams = {f"{self._groups[name].thing}:{each}" for name in names for each in self._direct[name]}
        for stream in streams:
            thing = int(stream.partition(":")[2])
            if thing not in self._leave and not self._reaches(stream):
                yield Left(id=thing, why=self._changed[stream])

    def _out_of_reach(self) -> Iterator[Left]:
        hidden = [name for name, rule in self._groups.items() if rule.thing and rule.is_hidden]
        whole = {each for name in hidden for each in self._direct[name]}
        for name, rule in self._groups.items():
            for each in self._direct[name] if rule.treatment is Treatment.REVERSED else ():
                if each not in whole and each not in self._leave:
                    yield Left(id=each, title=rule.title, why="a change, not a thing of its own; undo takes it back")

    def _in_force(self) -> Iterator[Left]:
        """Yield what stays in force, with the reason that its type declares."""
        others = self._direct["other"]
        counts = Counter(header.type for header in self._found.selected.headers if header.position in others)
        for name, count in counts.items():
            known = event_type(name)
            yield Left(title=f"{count} × {name}", why=known.rollback.why if known else _UNKNOWN)
        promoted = promoted_by(header.position for header in self._found.selected.of(SESSION_ENDED.name))
        for each in promoted - set(self._direct["memories_created"]) - self._leave:
            yield Left(id=each, why="kept when its scratch session ended, which stays so")

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
