"""What can happen to an iteration."""

from __future__ import annotations

from pydantic import Field

from memoryhub.core.projection import define_event, sets_aside, stays
from memoryhub.core.schemas import Payload


class IterationStarted(Payload):
    """A piece of work began."""

    command: str
    description: str = ""


class IterationAdvanced(Payload):
    """A phase of it was completed, and another may have begun."""

    iteration_id: int
    completed: str = ""
    phase: str = ""
    artifacts: list[str] = Field(default_factory=list)


class IterationEnded(Payload):
    """It was completed or abandoned."""

    iteration_id: int
    outcome: str = ""


_KEPT = stays("the iteration keeps its phase, artifacts and outcome")

ITERATION_STARTED = define_event(
    "iteration.started", IterationStarted, rollback=sets_aside("iterations"), changes_stream=False
)
ITERATION_ADVANCED = define_event("iteration.advanced", IterationAdvanced, rollback=_KEPT, changes_stream=False)
ITERATION_COMPLETED = define_event("iteration.completed", IterationEnded, rollback=_KEPT, changes_stream=False)
ITERATION_ABANDONED = define_event("iteration.abandoned", IterationEnded, rollback=_KEPT, changes_stream=False)
