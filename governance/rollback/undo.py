"""What undoes a roll-back, thing by thing, and what it would leave since others have changed it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from governance.models import Rollback
from governance.rollback.changes import undo_values
from governance.rollback.execute import states_at
from governance.rollback.plan import Plan, sorted_plan
from governance.rollback.selectors import listed
from governance.rollback.state import MemoryNow, changed_since, memories_now, rivals
from governance.rollback.undone import void_positions
from memories.models import Relation
from memoryhub.core.events.rollback import Left, Own, Step, Undo, count_events, effects
from memoryhub.core.log.quarantine import quarantined_among
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS

_PLACED = f"SELECT id FROM quarantine WHERE placed_by = %s AND id IN {IDS}"
_IN_QUARANTINE = "in quarantine since"
_INVERSE = {"delete": "restore", "restore": "delete", "revert": "revert", "review": "review"}


def undoing(rollback: Rollback) -> Plan:
    """Return what undoes a roll-back now."""
    steps = [Step.model_validate(each) for each in rollback.steps]
    own = Own(range(rollback.id + 1, rollback.id + 1 + count_events(steps)), void_positions())
    undos: dict[Undo, set[str]] = {}
    for effect in effects().values():
        undos.setdefault(effect.undo or partial(undo_values, effect), set()).add(effect.step)
    return sorted_plan(
        part for undo, names in undos.items() for part in undo([step for step in steps if step.do in names], own)
    )


def undo_quarantine(steps: Sequence[Step], own: Own) -> Iterator[Step | Left]:
    """Let out what the roll-back set aside."""
    ids = [step.id for step in steps]
    still = {row[0] for row in rows.fetch(_PLACED, [own.positions.start, listed(ids)])}
    for each in ids:
        yield Step(do="lift", id=each) if each in still else Left(id=each, why="let out or erased since")


def undo_memories(steps: Sequence[Step], own: Own) -> Iterator[Step | Left]:
    """Delete, restore, revert and review the other way round."""
    ids = {step.id for step in steps}
    memories = memories_now(ids)
    kept = changed_since({f"memory:{each}": own.positions.start for each in ids}, own.positions, own.void)
    why = {each: kept[f"memory:{each}"] for each in ids if f"memory:{each}" in kept}
    why |= dict.fromkeys(quarantined_among(sorted(ids)), _IN_QUARANTINE)
    why |= dict.fromkeys(ids - set(memories), "erased since")
    back = [step for step in steps if step.id not in why]
    why |= {
        each: f"#{rival} has its topic or title now; change or delete that first"
        for each, rival in _taken(back, memories)
    }
    yield from (Left(id=each, why=reason) for each, reason in why.items())
    yield from (_inverse(step, memories[step.id]) for step in steps if step.id not in why)


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


def undo_relations(steps: Sequence[Step], own: Own) -> Iterator[Step | Left]:
    """Take away what the roll-back related again."""
    ids = list(own.positions) if steps else []
    made = set(Relation.objects.filter(id__in=ids).values_list("id", flat=True))
    yield from (Step(do="unrelate", id=each) for each in made)
    if len(made) < len(steps):
        yield Left(title="Relations", why=f"{len(steps) - len(made)} of those made again were taken away since")


def undo_nothing(_steps: Sequence[Step], _own: Own) -> Iterator[Step | Left]:
    """Undo steps that only undoing takes; no roll-back that was made has one."""
    yield from ()
