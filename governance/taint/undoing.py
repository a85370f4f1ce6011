"""What undoes a roll-back, thing by thing, and what it would leave since others have changed it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from governance.models.taint import Rollback
from governance.taint.changes import Told, profile_told, settings_told, statuses_told
from governance.taint.perform import events_of
from governance.taint.plan import Plan, sorted_plan
from governance.taint.schemas import Left, Step
from governance.taint.selecting import listed
from governance.taint.standing import MemoryState, changed_since, memory_states, rivals
from memories.models import Relation
from memoryhub.core import rows

_PLACED = "SELECT id FROM quarantine WHERE placed_by = %s AND id IN (SELECT value FROM json_each(%s))"
_INVERSE = {"delete": "restore", "restore": "delete", "revert": "revert"}


def undoing(rollback: Rollback) -> Plan:
    """Return what undoes a roll-back now."""
    steps = [Step.model_validate(each) for each in rollback.steps]
    own = range(rollback.id + 1, rollback.id + 1 + events_of(steps))
    parts = [
        *_lifted(steps, own),
        *_memories(steps, own),
        *_relations(steps, own),
        *_set_back(steps, "configure", own, settings_told()),
        *_set_back(steps, "describe", own, profile_told()),
        *_set_back(steps, "mark", own, statuses_told(step.id for step in steps if step.do == "mark")),
    ]
    return sorted_plan(parts)


def _lifted(steps: list[Step], own: range) -> Iterator[Step | Left]:
    ids = [step.id for step in steps if step.do == "quarantine"]
    still = {row[0] for row in rows.fetch(_PLACED, [own.start, listed(ids)])}
    for each in ids:
        yield Step(do="lift", id=each) if each in still else Left(id=each, why="let out or erased since")


def _memories(steps: list[Step], own: range) -> Iterator[Step | Left]:
    mine = [step for step in steps if step.do in _INVERSE]
    ids = {step.id for step in mine}
    states = memory_states(ids)
    changed = changed_since({f"memory:{each}": own.start for each in ids}, own)
    back = [step.id for step in mine if step.do == "delete" and f"memory:{step.id}" not in changed]
    taken = rivals(back, (step.id for step in mine if step.do == "restore"))
    for step in mine:
        yield _inverse(step, states, changed, taken)


def _inverse(
    step: Step, states: Mapping[int, MemoryState], changed: Mapping[str, str], taken: Mapping[int, int]
) -> Step | Left:
    state = states.get(step.id)
    if state is None:
        return Left(id=step.id, why="erased since")
    if f"memory:{step.id}" in changed:
        return Left(id=step.id, why=changed[f"memory:{step.id}"])
    if step.do == "delete" and step.id in taken:
        return Left(id=step.id, why=f"#{taken[step.id]} has its topic or title now; change or delete that first")
    versions = {"from_version": state.version, "to_version": step.from_version} if step.do == "revert" else {}
    return Step(do=_INVERSE[step.do], id=step.id, **versions)


def _relations(steps: list[Step], own: range) -> Iterator[Step | Left]:
    """Take away what the roll-back related again."""
    wanted = [step for step in steps if step.do == "relate"]
    made = set(Relation.objects.filter(id__in=list(own)).values_list("id", flat=True)) if wanted else set()
    yield from (Step(do="unrelate", id=each) for each in made)
    if len(made) < len(wanted):
        yield Left(title="Relations", why=f"{len(wanted) - len(made)} of those made again were taken away since")


def _set_back(steps: list[Step], do: str, own: range, told: Mapping[Any, Told]) -> Iterator[Step | Left]:
    for step in steps:
        if step.do != do:
            continue
        position, actor, _ = told[step.id if do == "mark" else step.name].last()
        if position in own:
            yield Step(do=do, id=step.id, name=step.name, before=step.after, after=step.before)
        else:
            yield Left(id=step.id, title=step.name, why=f"changed since by {actor} at #{position}")
