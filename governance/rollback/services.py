from __future__ import annotations

from governance.events import ROLLBACK_MADE, ROLLBACK_UNDONE, RollbackMade, RollbackUndone
from governance.rollback.execute import execute_steps
from governance.rollback.plan import Plan, planned, token_of, traced
from governance.rollback.schemas import Preview, RollbackMake, RollbackPlan, RollbackUndo, RollbackView, Selection
from governance.rollback.selectors import find_rollback, view
from governance.rollback.tracing import shown_plan, view_trace
from governance.rollback.undo import plan_undo
from memoryhub.core import log
from memoryhub.core.errors import ConfirmationRequired, Conflict, Invalid
from memoryhub.core.permissions import Act, demand


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
