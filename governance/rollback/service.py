"""Preview, make and undo roll-backs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from governance.events import ROLLBACK_MADE, ROLLBACK_UNDONE, RollbackMade, RollbackUndone
from governance.models import Rollback
from governance.rollback.plan import Plan, planned, shown_plan, sorted_plan, token_of, traced, view_trace
from governance.rollback.reversal import execute_steps, states_at, undo_values
from governance.rollback.schemas import Preview, RollbackMake, RollbackPlan, RollbackUndo, RollbackView, Selection
from governance.rollback.selectors import (
    MemoryNow,
    changed_since,
    find_rollback,
    listed,
    memories_now,
    rivals,
    view,
    void_positions,
)
from memories.models import Relation
from memoryhub.core import log
from memoryhub.core.errors import ConfirmationRequired, Conflict, Invalid
from memoryhub.core.events.rollback import Left, Own, Step, Undo, count_events, effects
from memoryhub.core.log.quarantine import quarantined_among
from memoryhub.core.permissions import Act, demand
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS


def preview(*, command: RollbackPlan) -> Preview:
    """Return what a roll-back would do, with the token that confirms it; writes nothing.

    Raises:
        Invalid: an id in ``also`` is not downstream of the selection.
    """
    found = traced(command)
    plan = planned(command, found)
    return shown_plan(command, plan, view_trace(found), token_of(command, plan))


def roll_back(*, command: RollbackMake) -> RollbackView:
    """Quarantine or undo what a selection did, in one transaction.

    Raises:
        Forbidden: the caller may not govern.
        Invalid: there is nothing to do, or an id in ``also`` is not downstream of the selection.
        ConfirmationRequired: ``confirm_token`` does not match what would be done now.
    """
    demand(Act.GOVERN)
    with log.transaction():
        plan = planned(command, traced(command))
        if not plan.steps:
            raise Invalid("nothing to roll back: nothing of the selection is in force")
        _require_confirmation(command, plan)
        payload = RollbackMade(
            selection=command.model_dump(mode="json", include=set(Selection.model_fields), exclude_defaults=True),
            action=command.action,
            reason=command.reason,
            **_as_data(plan),
        )
        event = log.append(log.prepare(ROLLBACK_MADE, payload), entity="rollback")
        execute_steps(plan.steps, reason=_reason(f"roll-back #{event.position}", command.reason))
        return view(find_rollback(event.position))


def _require_confirmation(command: RollbackMake, plan: Plan) -> None:
    wanted = token_of(command, plan)
    if command.confirm_token != wanted:
        done = ", ".join(f"{count} × {do}" for do, count in plan.counts.items())
        raise ConfirmationRequired(
            f"roll back ({command.action}): {done}, {len(plan.left)} unchanged? Confirm with the token of the preview",
            confirm_token=wanted,
            id=None,
            counts=plan.counts,
        )


def undo_rollback(*, command: RollbackUndo) -> RollbackView:
    """Undo a roll-back in one transaction; leave what others have changed since.

    Raises:
        Forbidden: the caller may not govern.
        NotFound: there is no such roll-back.
        Conflict: it is already undone.
    """
    demand(Act.GOVERN)
    with log.transaction():
        rollback = find_rollback(command.id)
        if rollback.undone_at:
            raise Conflict(f"roll-back #{rollback.id} was already undone by {rollback.undone_by}", id=rollback.id)
        plan = plan_undo(rollback)
        payload = RollbackUndone(rollback_id=rollback.id, reason=command.reason, **_as_data(plan))
        log.append(log.prepare(ROLLBACK_UNDONE, payload), stream=f"rollback:{rollback.id}")
        execute_steps(plan.steps, reason=_reason(f"roll-back #{rollback.id} undone", command.reason))
        return view(find_rollback(rollback.id))


def _as_data(plan: Plan) -> dict[str, list[dict[str, object]]]:
    return {
        "steps": [step.model_dump(mode="json", exclude_defaults=True) for step in plan.steps],
        "left": [left.model_dump(mode="json", exclude_defaults=True) for left in plan.left],
    }


def _reason(what: str, why: str) -> str:
    return f"{what}: {why}" if why else what


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
