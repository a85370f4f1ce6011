"""Preview, make and undo roll-backs."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.db.models import Count, Max

from governance.events import ROLLBACK_MADE, ROLLBACK_UNDONE, RollbackMade, RollbackUndone
from governance.models import Rollback, RollbackAction
from governance.rollback.reversal import memory_groups, plan_values, undo_values
from governance.rollback.schemas import (
    SHOWN,
    Include,
    Preview,
    RollbackMake,
    RollbackPlan,
    RollbackUndo,
    RollbackView,
    Selection,
)
from governance.rollback.selectors import (
    LEFTS,
    STEPS,
    cancelled_positions,
    changed_since,
    entries_at_end,
    find_rollback,
    unchanged,
    view,
)
from governance.rollback.tracing import Traced, groups, touched_things, trace, view_trace
from memories.models import Conflict as VersionConflict
from memoryhub.core import log
from memoryhub.core.errors import ConfirmationRequired, ConflictError, Invalid
from memoryhub.core.events.event_types import event_type, types_reversed_by, types_that_change_streams
from memoryhub.core.events.rollback import Effect, Left, Own, Reach, Step, Treatment, Undo, count_events, effects
from memoryhub.core.log.quarantine import quarantined_among
from memoryhub.core.permissions import Act, demand
from sessions_app.events import SESSION_ENDED

_MAX_SESSIONS = 200
_MAX_ACTORS = 100


def event_sources() -> dict[str, list[tuple[str, int, str]]]:
    """Return the sessions, actors and sources of events, the latest first, by the field of a selection.

    Each with the number of its events, and the time of the last; ISO 8601.
    """
    sources = {}
    for column, most in (("session_id", _MAX_SESSIONS), ("actor", _MAX_ACTORS), ("source", _MAX_ACTORS)):
        named = log.events().exclude(**{column: ""}).order_by().values_list(column)
        latest = named.annotate(events=Count("*"), last=Max("occurred_at")).order_by("-last")[:most]
        sources[column] = list(latest)
    return sources


def preview(*, command: RollbackPlan) -> Preview:
    """Return what a roll-back would do, with the token that confirms it; writes nothing.

    Raises:
        Invalid: an id in ``also`` is not downstream of the selection.
    """
    traced = trace(command)
    plan = _sorted_plan(_Planner(command, traced).parts())
    return Preview(
        trace=view_trace(traced),
        action=command.action,
        counts=plan.counts,
        steps=plan.steps[:SHOWN],
        left=plan.unchanged[:SHOWN],
        left_count=len(plan.unchanged),
        confirm_token=_token_of(command, plan),
    )


def roll_back(*, command: RollbackMake) -> RollbackView:
    """Quarantine or undo what a selection did, in one transaction.

    Raises:
        Forbidden: the caller may not govern.
        Invalid: there is nothing to do, or an id in ``also`` is not downstream of the selection.
        ConfirmationRequired: ``confirm_token`` does not match what would be done now.
    """
    demand(Act.GOVERN)
    with log.transaction():
        plan = _sorted_plan(_Planner(command, trace(command)).parts())
        if not plan.steps:
            raise Invalid("nothing to roll back: nothing of the selection is in force")
        _require_confirmation(command, plan)
        payload = RollbackMade(
            selection=command.model_dump(mode="json", include=set(Selection.model_fields), exclude_defaults=True),
            action=command.action,
            reason=command.reason,
            **plan.as_data(exclude_defaults=True),
        )
        event = log.append(log.prepare(ROLLBACK_MADE, payload), entity="rollback")
        execute_steps(plan.steps, reason=_reason(f"roll-back #{event.position}", command.reason))
        return view(find_rollback(event.position))


def undo_rollback(*, command: RollbackUndo) -> RollbackView:
    """Undo a roll-back in one transaction; leave what others have changed since.

    Raises:
        Forbidden: the caller may not govern.
        NotFound: there is no such roll-back.
        ConflictError: it is already undone.
    """
    demand(Act.GOVERN)
    with log.transaction():
        rollback = find_rollback(command.id)
        if rollback.undone_at:
            raise ConflictError(f"roll-back #{rollback.id} was already undone by {rollback.undone_by}", id=rollback.id)
        plan = _plan_undo(rollback)
        payload = RollbackUndone(rollback_id=rollback.id, reason=command.reason, **plan.as_data(exclude_defaults=True))
        log.append(log.prepare(ROLLBACK_UNDONE, payload), stream=f"rollback:{rollback.id}")
        execute_steps(plan.steps, reason=_reason(f"roll-back #{rollback.id} undone", command.reason))
        return view(find_rollback(rollback.id))


def execute_steps(steps: Sequence[Step], *, reason: str) -> None:
    """Apply steps in the order of their effects; needs an open transaction of the log."""
    by_name: dict[str, list[Step]] = {}
    for step in steps:
        by_name.setdefault(step.do, []).append(step)
    for name, effect in effects().items():
        if name in by_name:
            apply = effect.apply or partial(_put_back, effect)
            apply(by_name[name], reason)


def _put_back(effect: Effect, steps: Sequence[Step], reason: str) -> None:
    values = effect.values
    if values is None or values.write is None:
        raise TypeError(f"effect {effect.step!r} can't be applied")  # ``Effect`` refuses such a declaration
    event_type = types_reversed_by(effect.step)[0]
    for step in steps:
        stream = f"{values.thing}:{step.id}" if values.thing else "project"
        log.append(log.prepare(event_type, values.write(step, reason)), stream=stream)


def _reason(what: str, why: str) -> str:
    return f"{what}: {why}" if why else what


@dataclass(frozen=True, slots=True)
class StepPlan:
    steps: list[Step]
    unchanged: list[Left]

    @property
    def counts(self) -> dict[str, int]:
        return dict(Counter(step.do for step in self.steps))

    def as_data(self, *, exclude_defaults: bool) -> dict[str, Any]:
        return {
            "steps": STEPS.dump_python(self.steps, mode="json", exclude_defaults=exclude_defaults),
            "left": LEFTS.dump_python(self.unchanged, mode="json", exclude_defaults=exclude_defaults),
        }


def _sorted_plan(parts: Iterable[Step | Left]) -> StepPlan:
    plan = StepPlan([], [])
    for part in parts:
        if isinstance(part, Step):
            plan.steps.append(part)
        else:
            plan.unchanged.append(part)
    order = list(effects())
    plan.steps.sort(key=lambda step: (order.index(step.do), step.id, step.name))
    plan.unchanged.sort(key=lambda item: (item.id, item.why, item.title))
    return plan


# A digest of the request and the plan, so a changed store has another token
def _token_of(command: RollbackPlan, plan: StepPlan) -> str:
    asked = command.model_dump(mode="json", include=set(RollbackPlan.model_fields))
    request = {"asked": asked, **plan.as_data(exclude_defaults=False)}
    return hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()[:16]


def _require_confirmation(command: RollbackMake, plan: StepPlan) -> None:
    token = _token_of(command, plan)
    if command.confirm_token != token:
        counts = ", ".join(f"{count} × {do}" for do, count in plan.counts.items())
        raise ConfirmationRequired(
            f"roll back ({command.action}): {counts}, {len(plan.unchanged)} unchanged? Confirm with the token of "
            "the preview",
            confirm_token=token,
            id=None,
            counts=plan.counts,
        )


# Inverts the steps of a roll-back, and leaves what others have changed since
def _plan_undo(rollback: Rollback) -> StepPlan:
    steps = STEPS.validate_python(rollback.steps)
    undone = Own(range(rollback.id + 1, rollback.id + 1 + count_events(steps)), cancelled_positions())
    undos: dict[Undo, set[str]] = {}
    for effect in effects().values():
        undos.setdefault(effect.undo or partial(undo_values, effect), set()).add(effect.step)
    parts: list[Step | Left] = []
    for undo, names in undos.items():
        parts += undo([step for step in steps if step.do in names], undone)
    return _sorted_plan(parts)


# What a roll-back would do to each item, and what it would leave; nothing is written
class _Planner:
    def __init__(self, command: RollbackPlan, traced: Traced) -> None:
        selected = traced.selected
        self._command = command
        self._selected = selected
        self._downstream = traced.downstream
        self._direct = traced.direct
        self._groups = groups()
        self._undo = command.action is RollbackAction.UNDO
        self._include_changed = Include.CHANGED_SINCE in command.include
        self._leave = set(command.leave)
        # Events of excluded items count as if others had caused them
        self._rolled_back = selected.positions
        touched = touched_things(self._direct)
        for thing in touched:
            if thing.id in self._leave:
                self._rolled_back -= set(thing.events)
        self._void = cancelled_positions() - selected.positions
        self._firsts, until = self._first_events()
        self._changed = changed_since(until, selected.positions, self._void)
        self._aside = quarantined_among(sorted(thing.id for thing in touched))

    def parts(self) -> Iterator[Step | Left]:
        setting_aside = {*self._to_set_aside(), *self._derived_chosen()} - self._leave
        quarantined = quarantined_among(sorted(setting_aside))
        yield from (Step(do="quarantine", id=thing_id) for thing_id in setting_aside - quarantined)
        yield from unchanged(quarantined, "already in quarantine")
        yield from unchanged(self._leave, "excluded by the request")
        yield from self._changed_by_others()
        if self._undo:
            yield from self._reversals(setting_aside)
        else:
            yield from self._out_of_reach()
        yield from self._in_force()

    # The first rolled-back change of each stream that others may have changed since, and after which position a change
    # by others counts
    def _first_events(self) -> tuple[dict[str, int], dict[str, int]]:
        firsts: dict[str, int] = {}
        for header in self._selected.of(*types_that_change_streams()):
            if header.stream.startswith(("memory:", "decision:")):
                firsts.setdefault(header.stream, header.position)
        until = dict(firsts)
        # Deleted by the end of a session, which is in another stream
        for memory in self._direct["memories_deleted"].values():
            stream = f"memory:{memory.id}"
            firsts[stream] = min(memory.first, firsts.get(stream, memory.first))
            until[stream] = max(firsts[stream], memory.events[-1])
        return firsts, until

    def _reaches(self, stream: str) -> bool:
        return self._include_changed or stream not in self._changed

    def _to_set_aside(self) -> Iterator[int]:
        for name, rule in self._groups.items():
            sets_aside = rule.is_hidden
            if self._undo:
                sets_aside = rule.treatment is Treatment.SET_ASIDE and not rule.by
            if not sets_aside:
                continue
            for thing_id in self._direct[name]:
                # The stream whose later changes protect an item
                stream = ""
                if rule.follows_stream:
                    stream = self._selected.streams[thing_id]
                elif rule.thing and rule.is_hidden:
                    stream = f"{rule.thing}:{thing_id}"
                if not stream or (self._reaches(stream) and int(stream.partition(":")[2]) not in self._leave):
                    yield thing_id
        if self._undo and self._include_changed:
            yield from self._conflicts_of_others()

    # Conflicts that others opened with versions that are undone too
    def _conflicts_of_others(self) -> Iterator[int]:
        memories: set[int] = set()
        for name in memory_groups():
            memories.update(self._direct[name])
        reached = [memory_id for memory_id in memories - self._leave if f"memory:{memory_id}" in self._changed]
        conflicts = VersionConflict.objects.filter(memory_id__in=reached)
        for conflict_id, memory_id in conflicts.values_list("id", "memory_id"):
            if conflict_id > self._firsts[f"memory:{memory_id}"]:
                yield conflict_id

    def _derived_chosen(self) -> set[int]:
        chosen = set(self._command.also)
        unknown = chosen - self._downstream_ids("built_on", "relations", "told_sessions", "influenced")
        if unknown:
            raise Invalid(f"'also': #{min(unknown)} is not downstream of the selection; use ids that the preview lists")
        if Include.BUILT_ON in self._command.include:
            chosen |= self._downstream_ids("built_on")
        if Include.INFLUENCED in self._command.include:
            chosen |= self._downstream_ids("influenced")
        return chosen

    def _downstream_ids(self, *names: str) -> set[int]:
        return {thing.id for name in names for thing in self._downstream[name]}

    # Groups of items that quarantine hides whole
    def _hidden_groups(self) -> list[str]:
        return [name for name, rule in self._groups.items() if rule.thing and rule.is_hidden]

    def _changed_by_others(self) -> Iterator[Left]:
        names = set(self._hidden_groups())
        if self._undo:
            names.update(memory_groups())
        streams: dict[str, int] = {}
        for name in names:
            for thing_id in self._direct[name]:
                streams[f"{self._groups[name].thing}:{thing_id}"] = thing_id
        for stream, thing_id in streams.items():
            if thing_id not in self._leave and not self._reaches(stream):
                yield Left(id=thing_id, why=self._changed[stream])

    def _out_of_reach(self) -> Iterator[Left]:
        listed = set(self._leave)
        for name in self._hidden_groups():
            listed.update(self._direct[name])
        why = "a change, which can't be quarantined; undo reverses it"
        for name, rule in self._groups.items():
            if rule.treatment is Treatment.REVERSED:
                yield from unchanged(self._direct[name].keys() - listed, why, title=rule.title)

    # Events that stay in force, with the reason that their type declares (decision 35)
    def _in_force(self) -> Iterator[Left]:
        other_events = self._direct["other"]
        counts = Counter(header.type for header in self._selected.headers if header.position in other_events)
        for name, count in counts.items():
            kind = event_type(name)
            why = "this version can't roll back events of this type; they stay in force"
            yield Left(title=f"{count} × {name}", why=kind.rollback.why if kind else why)
        ends = log.events().at(header.position for header in self._selected.of(SESSION_ENDED.name))
        promoted = {entry.memory_id for entry in entries_at_end(ends) if not entry.is_discarded}
        stay = promoted - self._direct["memories_created"].keys() - self._leave
        yield from unchanged(stay, "kept at the end of its scratch session; stays kept")

    def _reversals(self, setting_aside: set[int]) -> Iterator[Step | Left]:
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
        by_step = effects()
        steps = dict.fromkeys(rule.by for name, rule in self._groups.items() if rule.by and reach.things[name])
        for plan in dict.fromkeys(by_step[step].plan or partial(plan_values, by_step[step]) for step in steps):
            yield from plan(reach)
