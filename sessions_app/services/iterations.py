from __future__ import annotations

from typing import Any

from memoryhub.core import log
from memoryhub.core.errors import Conflict, NotFound
from memoryhub.core.events.event_types import EventType
from memoryhub.core.schemas import Payload
from sessions_app.events.work import (
    ITERATION_ABANDONED,
    ITERATION_ADVANCED,
    ITERATION_COMPLETED,
    ITERATION_STARTED,
    IterationAdvanced,
    IterationEnded,
    IterationStarted,
)
from sessions_app.models import Iteration, IterationStatus
from sessions_app.schemas import IterationAdvance, IterationComplete, IterationStart
from sessions_app.selectors import find_iteration


def start_iteration(*, command: IterationStart) -> Iteration:
    """Start an iteration and return it.

    Raises:
        Conflict: another one is active; the data has its id.
    """
    payload = IterationStarted(command=command.command, description=command.description)
    draft = log.prepare(ITERATION_STARTED, payload)
    with log.transaction():
        active = active_iteration()
        if active:
            raise Conflict(
                f"iteration #{active.id} is active; complete it with iteration_complete, or abandon it", id=active.id
            )
        event = log.append(draft, entity="iteration")
        return find_iteration(event.position)


def advance_iteration(*, command: IterationAdvance) -> Iteration:
    """Complete the current phase, start the next, and add artifacts.

    Raises:
        NotFound: there is no such iteration, or none is active.
        Conflict: it has ended.
    """
    with log.transaction():
        iteration = _active(command.id)
        completed = command.completed or iteration.phase
        return record_phase(iteration, completed=completed, phase=command.phase, artifacts=command.artifacts)


def record_phase(iteration: Iteration, *, completed: str, phase: str, artifacts: list[str]) -> Iteration:
    """Record a completed phase, "" for none, and the one that follows it."""
    payload = IterationAdvanced(iteration_id=iteration.id, completed=completed, phase=phase, artifacts=artifacts)
    return _append(iteration, ITERATION_ADVANCED, payload)


def complete_iteration(*, command: IterationComplete) -> Iteration:
    """Complete or abandon an iteration.

    Raises:
        NotFound: there is no such iteration, or none is active.
        Conflict: it has already ended.
    """
    with log.transaction():
        iteration = _active(command.id)
        payload = IterationEnded(iteration_id=iteration.id, outcome=command.outcome)
        return _append(iteration, ITERATION_ABANDONED if command.abandon else ITERATION_COMPLETED, payload)


def _append(iteration: Iteration, event_type: EventType[Any], payload: Payload) -> Iteration:
    log.append(log.prepare(event_type, payload), stream=f"iteration:{iteration.id}")
    return find_iteration(iteration.id)


def _active(iteration_id: int | None) -> Iteration:
    iteration = find_iteration(iteration_id) if iteration_id else active_iteration()
    if iteration is None:
        raise NotFound("no iteration is active; start one with iteration_start")
    if iteration.status != IterationStatus.ACTIVE:
        raise Conflict(f"iteration #{iteration.id} is already {iteration.status}", id=iteration.id)
    return iteration


def active_iteration() -> Iteration | None:
    """Return the active iteration, or None."""
    found: Iteration | None = Iteration.objects.filter(status=IterationStatus.ACTIVE).order_by("-id").first()
    return found
