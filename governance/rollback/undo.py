"""Plan the undo of a roll-back: invert its steps, leave what others have changed since."""

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
_IN_QUARANTINE = "quarantined since"
_INVERSE = {"delete": "restore", "restore": "delete", "revert": "revert", "review": "review"}


def plan_undo(rollback: Rollback) -> Plan:
    steps = [Step.model_validate(step) for step in rollback.steps]
    own = Own(range(rollback.id + 1, rollback.id + 1 + count_events(steps)), void_positions())
    undos: dict[Undo, set[str]] = {}
    for effect in effects().values():
        undos.setdefault(effect.undo or partial(undo_values, effect), set()).add(effect.step)
    return sorted_plan(
        part for undo, names in undos.items() for part in undo([step for step in steps if step.do in names], own)
    )


def undo_quarantine(steps: Sequence[Step], own: Own) -> Iterator[Step | Left]:
    ids = [step.id for step in steps]
    still = {row[0] for row in rows.fetch(_PLACED, [own.positions.start, listed(ids)])}
    for thing_id in ids:
        yield Step(do="lift", id=thing_id) if thing_id in still else Left(id=thing_id, why="released or erased since")


def undo_memories(steps: Sequence[Step], own: Own) -> Iterator[Step | Left]:
    ids = {step.id for step in steps}
    memories = memories_now(ids)
    kept = changed_since({f"memory:{memory_id}": own.positions.start for memory_id in ids}, own.positions, own.void)
    why = {memory_id: kept[f"memory:{memory_id}"] for memory_id in ids if f"memory:{memory_id}" in kept}
    why |= dict.fromkeys(quarantined_among(sorted(ids)), _IN_QUARANTINE)
    why |= dict.fromkeys(ids - set(memories), "erased since")
    back = [step for step in steps if step.id not in why]
    why |= {
        memory_id: f"#{rival} has its topic or title now; change or delete that first"
        for memory_id, rival in _taken(back, memories)
    }
    yield from (Left(id=memory_id, why=reason) for memory_id, reason in why.items())
    yield from (_inverse(step, memories[step.id]) for step in steps if step.id not in why)


def _taken(steps: list[Step], memories: Mapping[int, MemoryNow]) -> Iterator[tuple[int, int]]:
    going = {step.id for step in steps if step.do == "restore"}
    states = states_at({step.id: step.from_version or 1 for step in steps if step.do == "revert"})
    back = {step.id for step in steps if step.do == "delete"}
    moved = {step.id for step in steps if step.id in back or not memories[step.id].deleted} - going
    wanted = {memory_id: memories[memory_id].named(states.get(memory_id)) for memory_id in moved}
    renamed = {
        memory_id: name
        for memory_id, name in wanted.items()
        if memories[memory_id].deleted or name != memories[memory_id].named()
    }
    while found := rivals(renamed.values(), going | set(renamed)):
        yield from found.items()
        renamed = {memory_id: name for memory_id, name in renamed.items() if memory_id not in found}


def _inverse(step: Step, memory: MemoryNow) -> Step:
    versions = {"from_version": memory.version, "to_version": step.from_version} if step.do == "revert" else {}
    return Step(do=_INVERSE[step.do], id=step.id, before=step.after, after=step.before, **versions)


def undo_relations(steps: Sequence[Step], own: Own) -> Iterator[Step | Left]:
    ids = list(own.positions) if steps else []
    made = set(Relation.objects.filter(id__in=ids).values_list("id", flat=True))
    yield from (Step(do="unrelate", id=relation_id) for relation_id in made)
    if len(made) < len(steps):
        yield Left(title="Relations", why=f"{len(steps) - len(made)} of the restored relations were removed since")


def undo_nothing(_steps: Sequence[Step], _own: Own) -> Iterator[Step | Left]:
    yield from ()
