"""Projectors of sessions, turns, commits, iterations, settings and the profile."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

from memoryhub.core import clock
from memoryhub.core.events.projection import Event, project_headers, projects
from memoryhub.core.log import PAYLOAD_ERASED, PayloadErased
from memoryhub.core.stores import rows
from sessions_app.events import (
    COMMIT_LINKED,
    COMMIT_RECORDED,
    ITERATION_ABANDONED,
    ITERATION_ADVANCED,
    ITERATION_COMPLETED,
    ITERATION_STARTED,
    PROJECT_CONFIGURED,
    PROJECT_DESCRIBED,
    SESSION_ENDED,
    SESSION_PAUSED,
    SESSION_RESUMED,
    SESSION_STARTED,
    TURN_BEGAN,
    TURN_ENDED,
    TURN_EXPIRED,
    CommitLinked,
    CommitRecorded,
    IterationAdvanced,
    IterationEnded,
    IterationStarted,
    ProjectConfigured,
    ProjectDescribed,
    SessionEnded,
    SessionStarted,
    SessionTouched,
    TurnBegan,
    TurnEnded,
    TurnExpired,
)
from sessions_app.models import (
    Commit,
    Iteration,
    IterationStatus,
    Profile,
    Session,
    SessionStatus,
    Setting,
    Turn,
    TurnStatus,
)


@projects(SESSION_STARTED)
def start_session(event: Event[SessionStarted]) -> None:
    payload = event.payload
    rows.insert(
        Session,
        id=event.position,
        session_id=payload.session_id,
        purpose=payload.purpose,
        mode=payload.mode,
        status=SessionStatus.ACTIVE,
        directory=payload.directory,
        agent=payload.agent,
        started_at=_moment(payload.started_at, event),
    )


@projects(SESSION_ENDED)
def end_session(event: Event[SessionEnded]) -> None:
    rows.execute(
        "UPDATE sessions_app_session SET status = %s, summary = %s, ended_at = %s WHERE session_id = %s",
        [
            event.payload.status,
            event.payload.summary,
            rows.time_value(_moment(event.payload.ended_at, event)),
            event.payload.session_id,
        ],
    )


@projects(SESSION_PAUSED, SESSION_RESUMED)
def pause_or_resume(event: Event[SessionTouched]) -> None:
    status = SessionStatus.PAUSED if event.type == SESSION_PAUSED.name else SessionStatus.ACTIVE
    rows.execute(
        "UPDATE sessions_app_session SET status = %s, ended_at = NULL WHERE session_id = %s",
        [status, event.payload.session_id],
    )


def _moment(time: str | None, event: Event[Any]) -> datetime:
    if time:
        return clock.from_text(time)
    return event.occurred_at


@projects(PROJECT_CONFIGURED)
def configure(event: Event[ProjectConfigured]) -> None:
    for name, value in event.payload.settings.items():
        rows.execute("DELETE FROM sessions_app_setting WHERE name = %s", [name])
        if value is not None:
            rows.insert(Setting, name=name, value=value)


# Runs for every event of a turn: plain SQL (decision 5).
_KEEP_OPEN = "SELECT id, ack_seconds FROM sessions_app_turn WHERE session_id = %s AND turn_id = %s AND status = 'open'"


@projects(TURN_BEGAN)
def begin(event: Event[TurnBegan]) -> None:
    payload = event.payload
    rows.insert(
        Turn,
        id=event.position,
        session_id=payload.session_id,
        turn_id=payload.turn_id,
        status=TurnStatus.OPEN,
        automatic=payload.automatic,
        ack_token_hash=payload.ack_token_hash,
        ack_seconds=payload.ack_seconds,
        expires_at=event.occurred_at + timedelta(seconds=payload.ack_seconds),
        began_at=_moment(payload.began_at, event),
        actor=event.actor,
        event_count=0,
    )


@projects(TURN_ENDED)
def end(event: Event[TurnEnded]) -> None:
    _close(event, TurnStatus.CLOSED, event.payload.summary, event.payload.ended_at)


@projects(TURN_EXPIRED)
def expire(event: Event[TurnExpired]) -> None:
    _close(event, TurnStatus.INCOMPLETE, "")


def _close(event: Event[Any], status: TurnStatus, summary: str, ended_at: str | None = None) -> None:
    rows.execute(
        "UPDATE sessions_app_turn SET status = %s, ended_at = %s, summary = %s WHERE session_id = %s AND turn_id = %s",
        [status, rows.time_value(_moment(ended_at, event)), summary, event.payload.session_id, event.payload.turn_id],
    )


# Each event of an open turn restarts its timeout.
@project_headers
def keep_open(event: Event[Any]) -> None:
    if not event.turn_id or event.type == TURN_BEGAN.name:
        return
    for turn, seconds in rows.fetch(_KEEP_OPEN, [event.session_id, event.turn_id]):
        rows.execute(
            "UPDATE sessions_app_turn SET event_count = event_count + 1, expires_at = %s WHERE id = %s",
            [rows.time_value(event.occurred_at + timedelta(seconds=seconds)), turn],
        )


@projects(COMMIT_RECORDED)
def record_commit(event: Event[CommitRecorded]) -> None:
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
    if event.payload.iteration_id is not None:
        rows.update(Commit, event.payload.commit_id, iteration_id=event.payload.iteration_id)


def _active_iteration() -> int | None:
    iterations = rows.fetch("SELECT max(id) FROM sessions_app_iteration WHERE status = %s", [IterationStatus.ACTIVE])
    active: int | None = iterations[0][0]
    return active


@projects(ITERATION_STARTED)
def start_iteration(event: Event[IterationStarted]) -> None:
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
    payload = event.payload
    completed_json, artifacts_json = rows.fetch(
        "SELECT phases_completed, artifacts FROM sessions_app_iteration WHERE id = %s", [payload.iteration_id]
    )[0]
    completed = json.loads(completed_json)
    if payload.completed:
        completed.append(payload.completed)
    rows.update(
        Iteration,
        payload.iteration_id,
        phase=payload.phase,
        phases_completed=completed,
        artifacts=[*json.loads(artifacts_json), *payload.artifacts],
    )


@projects(ITERATION_COMPLETED, ITERATION_ABANDONED)
def end_iteration(event: Event[IterationEnded]) -> None:
    is_completed = event.type == ITERATION_COMPLETED.name
    rows.update(
        Iteration,
        event.payload.iteration_id,
        status=IterationStatus.COMPLETED if is_completed else IterationStatus.ABANDONED,
        outcome=event.payload.outcome,
        ended_at=event.occurred_at,
        end_position=event.position,
    )


@projects(PAYLOAD_ERASED)
def remove_erased(event: Event[PayloadErased]) -> None:
    for position in event.payload.positions:
        for table in ("session", "turn", "iteration", "commit", "profile"):
            rows.execute(f"DELETE FROM sessions_app_{table} WHERE id = %s", [position])


@projects(PROJECT_DESCRIBED)
def describe(event: Event[ProjectDescribed]) -> None:
    changes = {name: getattr(event.payload, name) for name in sorted(event.payload.model_fields_set)}
    existing = rows.fetch("SELECT id FROM sessions_app_profile")
    if existing:
        rows.update(Profile, existing[0][0], **changes, updated_at=event.occurred_at)
    else:
        rows.insert(Profile, id=event.position, **changes, updated_at=event.occurred_at)
