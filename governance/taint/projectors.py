"""What is so, after what happened in a roll-back."""

from __future__ import annotations

from governance.models.taint import Rollback
from governance.taint.events import ROLLBACK_MADE, ROLLBACK_UNDONE, RollbackMade, RollbackUndone
from memoryhub.core import rows
from memoryhub.core.projection import Event, projects


@projects(ROLLBACK_MADE)
def keep_rollback(event: Event[RollbackMade]) -> None:
    """Add the roll-back."""
    rows.insert(Rollback, id=event.position, actor=event.actor, made_at=event.occurred_at, **event.payload.model_dump())


@projects(ROLLBACK_UNDONE)
def keep_undoing(event: Event[RollbackUndone]) -> None:
    """Note who undid it, when, and what that left as it is."""
    rows.update(
        Rollback,
        event.payload.rollback_id,
        undone_by=event.actor,
        undone_at=event.occurred_at,
        undone_left=event.payload.left,
    )
