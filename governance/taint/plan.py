"""What a roll-back would do, thing by thing, and what it would leave as it is. Nothing is written here."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from governance.models.taint import RollbackAction
from governance.taint.changes import changes_taken_back
from governance.taint.derived import Aftermath, derived_from
from governance.taint.direct import GROUPS, Direct, touched_by
from governance.taint.perform import ORDER
from governance.taint.relations import relations_back
from governance.taint.schemas import Include, Left, RollbackPlan, Selection, Step
from governance.taint.selecting import Selected, select
from governance.taint.standing import NEVER, MemoryState, changed_since, clean_versions, memory_states, rivals
from governance.taint.undone import void_positions
from memoryhub.core.errors import Invalid
from memoryhub.core.quarantine import quarantined_among

_SET_ASIDE = (
    "decisions edges evidence relations tags commits iterations sessions turns messages".split()
)  # what has an id of its own, and what an undoing keeps too: it happened, or was chosen
_MERE_CHANGES = "memories_deleted memories_restored relations_removed settings profile marks".split()


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
    steps.sort(key=lambda step: (ORDER.index(step.do), step.id, step.name))
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
        self._tainted = found.selected.positions
        self._leave = set(command.leave)
        self._void = void_positions() - self._tainted
        self._states = memory_states(self._memory_ids(), self._void)
        self._changed = changed_since(self._since(), self._tainted, self._void)

    def parts(self) -> Iterator[Step | Left]:
        """Yield every step, and everything that is left."""
        setting_aside = set(self._to_set_aside())
        known = quarantined_among(sorted(setting_aside))
        yield from (Step(do="quarantine", id=each) for each in setting_aside - known)
        yield from (Left(id=each, why="in quarantine already") for each in known)
        yield from (Left(id=each, why="left by choice") for each in self._leave)
        yield from self._kept_for_others()
        if self._command.action is RollbackAction.UNDO:
            yield from self._undone()
        else:
            yield from self._out_of_reach()
        yield from self._untold()

    def _memory_ids(self) -> set[int]:
        groups = ("memories_created", "memories_revised", "memories_deleted", "memories_restored")
        return {each for name in groups for each in self._direct[name]}

    def _since(self) -> dict[str, int]:
        """Return the first tainted event of each stream that others may have changed since."""
        firsts: dict[str, int] = {}
        for header in self._found.selected.headers:
            if header.stream.startswith(("memory:", "decision:")):
                firsts.setdefault(header.stream, header.position)
        return firsts

    def _reaches(self, stream: str) -> bool:
        return Include.CHANGED_SINCE in self._command.include or stream not in self._changed

    def _to_set_aside(self) -> Iterator[int]:
        """Yield the ids that go into quarantine: of what the selection made, and of what else was chosen."""
        undo = self._command.action is RollbackAction.UNDO
        for name in _SET_ASIDE if undo else ("memories_created", "memories_revised", *_SET_ASIDE):
            kind = "memory" if name.startswith("memories") else "decision" if name == "decisions" else ""
            for each in self._direct[name]:
                if each not in self._leave and (not kind or self._reaches(f"{kind}:{each}")):
                    yield each
        yield from self._derived_chosen()

    def _derived_chosen(self) -> set[int]:
        aftermath, include = self._found.aftermath, self._command.include
        chosen = set(self._command.also)
        strange = chosen - aftermath.ids("built_on", "relations", "told_sessions", "influenced")
        if strange:
            raise Invalid(f"'also': #{min(strange)} is nothing that was derived; the preview lists what was")
        chosen |= aftermath.ids("built_on") if Include.BUILT_ON in include else set()
        chosen |= aftermath.ids("influenced") if Include.INFLUENCED in include else set()
        return chosen - self._leave

    def _kept_for_others(self) -> Iterator[Left]:
        for name, kind in (("memories_created", "memory"), ("memories_revised", "memory"), ("decisions", "decision")):
            for each in self._direct[name]:
                if each not in self._leave and not self._reaches(f"{kind}:{each}"):
                    yield Left(id=each, why=self._changed[f"{kind}:{each}"])

    def _out_of_reach(self) -> Iterator[Left]:
        for name in _MERE_CHANGES:
            for each in self._direct[name].values():
                if each.id not in self._direct["memories_created"] and each.id not in self._direct["decisions"]:
                    yield Left(
                        id=each.id, title=GROUPS[name], why="a change, not a thing of its own; undo takes it back"
                    )

    def _untold(self) -> Iterator[Left]:
        counts = Counter(header.type for header in self._found.selected.headers if self._is_other(header.position))
        for name, count in counts.items():
            yield Left(title=f"{count} × {name}", why="an event that nothing tells of and nothing stands upon")

    def _is_other(self, position: int) -> bool:
        return position in self._direct["other"]

    def _undone(self) -> Iterator[Step | Left]:
        yield from self._deletions()
        yield from self._restorings()
        yield from self._reversions()
        yield from relations_back(each for each in self._direct["relations_removed"] if self._was_clean(each))
        include_changed = Include.CHANGED_SINCE in self._command.include
        yield from changes_taken_back(self._direct, self._tainted, self._void, include_changed=include_changed)

    def _was_clean(self, relation_id: int) -> bool:
        return relation_id not in self._tainted and relation_id not in self._leave

    def _of(self, group: str, wanted: Callable[[int, MemoryState], bool]) -> list[int]:
        """Return the memories of a group that are reached and stand as ``wanted``."""
        return [
            each
            for each in self._direct[group]
            if each in self._states
            and each not in self._leave
            and self._reaches(f"memory:{each}")
            and wanted(each, self._states[each])
        ]

    def _is_own_touch(self, state: MemoryState) -> bool:
        return state.last_touch in self._tainted

    def _deletions(self) -> Iterator[Step]:
        created = self._of("memories_created", lambda _, state: not state.deleted)
        brought_back = self._of("memories_restored", lambda _, state: not state.deleted and self._is_own_touch(state))
        for each in {*created, *brought_back}:
            yield Step(do="delete", id=each, from_version=self._states[each].version)

    def _restorings(self) -> Iterator[Step | Left]:
        created = self._direct["memories_created"]
        gone = self._of(
            "memories_deleted",
            lambda each, state: state.deleted and self._is_own_touch(state) and each not in created,
        )
        taken = rivals(gone, {each.id for each in self._deletions()})
        for each in gone:
            if each in taken:
                yield Left(id=each, why=f"#{taken[each]} has its topic or title now; change or delete that first")
            else:
                yield Step(do="restore", id=each)

    def _reversions(self) -> Iterator[Step | Left]:
        back = {each.id for each in self._restorings() if isinstance(each, Step)}
        revised = self._of("memories_revised", lambda each, state: not state.deleted or each in back)
        group = self._direct["memories_revised"]
        limits = {each: group[each].first if f"memory:{each}" in self._changed else NEVER for each in revised}
        clean = clean_versions(limits, self._tainted | self._void)
        for each in revised:
            if each in clean and clean[each] != self._states[each].version:
                yield Step(do="revert", id=each, from_version=self._states[each].version, to_version=clean[each])
