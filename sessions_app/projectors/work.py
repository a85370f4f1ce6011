"""Iterations, and the commits that attach to the active one."""

from __future__ import annotations

import json

from memoryhub.core import clock, rows
from memoryhub.core.log import PAYLOAD_ERASED, PayloadErased
from memoryhub.core.projection import Event, projects
from sessions_app.events import COMMIT_LINKED, COMMIT_RECORDED, CommitLinked, CommitRecorded
from sessions_app.events.iterations import (
    ITERATION_ABANDONED,
    ITERATION_ADVANCED,
    ITERATION_COMPLETED,
    ITERATION_STARTED,
    IterationAdvanced,
    IterationEnded,
    IterationStarted,
)
from sessions_app.models import Commit, Iteration, IterationStatus


@projects(COMMIT_RECORDED)
def record_commit(event: Event[CommitRecorded]) -> None:
    """Add the commit, attached to the iteration that it names, else to the active one."""
    payload = event.payload
    rows.insert(
        Commit,
        id=event.position,
        sha=payload.sha,
        message=payload.message,
        author=payload.author,
        committed_at=clock.from_text(payload.committed_at),
        insertions=sum(file.insertions or 0 for file in payload.files),
        deletions=sum(file.deletions or 0 for file in payload.files),
        iteration_id=payload.iteration_id or _active_iteration(),
        files=[file.model_dump() for file in payload.files],
    )


@projects(COMMIT_LINKED)
def move_commit(event: Event[CommitLinked]) -> None:
    """Attach a known commit to the iteration that is named."""
    if event.payload.iteration_id is not None:
        rows.update(Commit, event.payload.commit_id, iteration_id=event.payload.iteration_id)


def _active_iteration() -> int | None:
    found = rows.fetch("SELECT max(id) FROM sessions_app_iteration WHERE status = %s", [IterationStatus.ACTIVE])
    active: int | None = found[0][0]
    return active


@projects(ITERATION_STARTED)
def start_iteration(event: Event[IterationStarted]) -> None:
    """Add the iteration, active."""
    rows.insert(
        Iteration,
        id=event.position,
        command=event.payload.command,
        description=event.payload.description,
        status=IterationStatus.ACTIVE,
        session_id=event.session_id,
        started_at=event.occurred_at,
    )


@projects(ITERATION_ADVANCED)
def advance_iteration(event: Event[IterationAdvanced]) -> None:
    """Note what was completed, what was made, and the phase that has begun."""
    payload = event.payload
    done, made = rows.fetch(
        "SELECT phases_completed, artifacts FROM sessions_app_iteration WHERE id = %s", [payload.iteration_id]
    )[0]
    completed = [*json.loads(done), payload.completed] if payload.completed else json.loads(done)
    rows.update(
        Iteration,
        payload.iteration_id,
        phase=payload.phase,
        phases_completed=completed,
        artifacts=[*json.loads(made), *payload.artifacts],
    )


@projects(ITERATION_COMPLETED, ITERATION_ABANDONED)
def end_iteration(event: Event[IterationEnded]) -> None:
    """Close the iteration."""
    completed = event.type == ITERATION_COMPLETED.name
    rows.update(
        Iteration,
        event.payload.iteration_id,
        status=IterationStatus.COMPLETED if completed else IterationStatus.ABANDONED,
        outcome=event.payload.outcome,
        ended_at=event.occurred_at,
        end_position=event.position,
    )


@projects(PAYLOAD_ERASED)
def remove_erased(event: Event[PayloadErased]) -> None:
    """Drop whatever the erased events had created."""
    for position in event.payload.positions:
        for table in ("session", "turn", "iteration", "commit", "profile"):
            rows.execute(f"DELETE FROM sessions_app_{table} WHERE id = %s", [position])
