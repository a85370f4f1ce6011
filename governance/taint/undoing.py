"""What undoes a roll-back, thing by thing, and what it would leave since others have changed it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from governance.models.taint import Rollback
from governance.taint.changes import Told, profile_told, settings_told, statuses_told
from governance.taint.perform import events_of, states_at
from governance.taint.plan import Plan, sorted_plan
from governance.taint.schemas import Left, Step
from governance.taint.selecting import listed
from governance.taint.standing import MemoryNow, changed_since, memories_now, rivals
from governance.taint.undone import void_positions
from memories.models import Relation
from memoryhub.core import rows
from memoryhub.core.dialect import IDS
from memoryhub.core.quarantine import quarantined_among

_PLACED = f"SELECT id FROM quarantine WHERE placed_by = %s AND id IN {IDS}"
_IN_QUARANTINE = "in quarantine since"
_INVERSE = {"delete": "restore", "restore": "delete", "revert": "revert", "review": "review"}


def undoing(rollback: Rollback) -> Plan:
    """Return what undoes a roll-back now."""
    steps = [Step.model_validate(each) for each in rollback.steps]
    own = range(rollback.id + 1, rollback.id + 1 + events_of(steps))
    void = void_positions()
    marked = [step.id for step in steps if step.do == "mark"]
    aside = quarantined_among(marked)
    parts = [
        *_lifted(steps, own),
        *_memories(steps, own, void),
        *_relations(steps, own),
        *_set_back(steps, "configure", own, void, settings_told()),
        *_set_back(steps, "describe", own, void, profile_told()),
        *(Left(id=each, why=_IN_QUARANTINE) for each in aside),
        *_set_back([step for step in steps if step.id not in aside], "mark", own, void, statuses_told(marked)),
    ]
    return sorted_plan(parts)


def _lifted(steps: list[Step], own: range) -> Iterator[Step | Left]:
    ids = [step.id for step in steps if step.do == "quarantine"]
    still = {row[0] for row in rows.fetch(_PLACED, [own.start, listed(ids)])}
    for each in ids:
        yield Step(do="lift", id=each) if each in still else Left(id=each, why="let out or erased since")


def _memories(steps: list[Step], own: range, void: frozenset[int]) -> Iterator[Step | Left]:
    mine = [step for step in steps if step.do in _INVERSE]
    ids = {step.id for step in mine}
    memories = memories_now(ids)
    kept = changed_since({f"memory:{each}": own.start for each in ids}, own, void)
    why = {each: kept[f"memory:{each}"] for each in ids if f"memory:{each}" in kept}
    why |= dict.fromkeys(quarantined_among(sorted(ids)), _IN_QUARANTINE)
    why |= dict.fromkeys(ids - set(memories), "erased since")
    back = [step for step in mine if step.id not in why]
    why |= {
        each: f"#{rival} has its topic or title now; change or delete that first"
        for each, rival in _taken(back, memories)
    }
    yield from (Left(id=each, why=reason) for each, reason in why.items())
    yield from (_inverse(step, memories[step.id]) for step in mine if step.id not in why)


def _taken(steps: list[Step], memories: Mapping[int, MemoryNow]) -> Iterator[tuple[int, int]]:
    """Yield memories that can't have their former name again, each with the one that has it."""
    going = {step.id for step in steps if step.do == "restore"}
    states = states_at({step.id: step.from_version or 1 for step in steps if step.do == "revert"})
    back = {step.id for step in steps if step.do == "delete"}
    moved = {step.id for step in steps if step.id in back or not memories[step.id].deleted} - going
    wanted = {each: memories[each].named(states.get(each)) for each in moved}
    renamed = {each: name for each, name in wanted.items() if memories[each].deleted or name != memories[each].named()}
    while found := rivals(renamed.values(), going | set(renamed)):
        yield from found.items()
        renamed = {each: name for each, name in renamed.items() if each not in found}


def _inverse(step: Step, memory: MemoryNow) -> Step:
    versions = {"from_version": memory.version, "to_version": step.from_version} if step.do == "revert" else {}
    return Step(do=_INVERSE[step.do], id=step.id, before=step.after, after=step.before, **versions)


def _relations(steps: list[Step], own: range) -> Iterator[Step | Left]:
    """Take away what the roll-back related again."""
    wanted = [step for step in steps if step.do == "relate"]
    made = set(Relation.objects.filter(id__in=list(own)).values_list("id", flat=True)) if wanted else set()
    yield from (Step(do="unrelate", id=each) for each in made)
    if len(made) < len(wanted):
        yield Left(title="Relations", why=f"{len(wanted) - len(made)} of those made again were taken away since")


def _set_back(
    steps: list[Step], do: str, own: range, void: frozenset[int], told: Mapping[Any, Told]
) -> Iterator[Step | Left]:
    for step in steps:
        if step.do != do:
            continue
        values = told.get(step.id if do == "mark" else step.name, Told()).without(void)
        if not values.said:
            yield Left(id=step.id, title=step.name, why="erased since")
            continue
        position, actor, _ = values.last()
        if position in own:
            yield Step(do=do, id=step.id, name=step.name, before=step.after, after=step.before)
        else:
            yield Left(id=step.id, title=step.name, why=f"changed since by {actor} at #{position}")
