"""What can happen to an iteration."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from pydantic import Field

from memoryhub.core.event_types import EventGroup, Retention, define_event
from memoryhub.core.rollback import sets_aside, stays
from memoryhub.core.schemas import Payload
from sessions_app.entries import joined


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


def _about(payload: Mapping[str, Any]) -> str:
    return joined(payload.get("command"), payload.get("description"))


def _about_phases(payload: Mapping[str, Any]) -> str:
    done, begun = payload.get("completed"), payload.get("phase")
    return ", ".join([*([f"{done} done"] if done else []), *([f"{begun} begins"] if begun else [])]) or "artifacts"


WORK = EventGroup("work", "Phases and iterations", 40, "phase")

_PROGRESS_STAYS = stays("the iteration keeps its phase, artifacts and outcome")

_define = partial(define_event, group=WORK, retention=Retention.WITH_STREAM, changes_stream=False)

ITERATION_STARTED = _define(
    "iteration.started",
    IterationStarted,
    label="Iteration started",
    rollback=sets_aside("iterations", "Iterations begun", order=180),
    about=_about,
)
ITERATION_ADVANCED = _define(
    "iteration.advanced", IterationAdvanced, label="Next phase", rollback=_PROGRESS_STAYS, about=_about_phases
)
ITERATION_COMPLETED = _define(
    "iteration.completed", IterationEnded, label="Iteration completed", rollback=_PROGRESS_STAYS
)
ITERATION_ABANDONED = _define(
    "iteration.abandoned", IterationEnded, label="Iteration abandoned", rollback=_PROGRESS_STAYS
)
