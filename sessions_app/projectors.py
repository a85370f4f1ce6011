"""Projectors of sessions, turns, commits, iterations, settings and the profile."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

from memoryhub.core import clock
from memoryhub.core.events.projection import Event, project_headers, projects
from memoryhub.core.log import PAYLOAD_ERASED, PayloadErased
from memoryhub.core.stores import rows
from sessions_app import events, models


@projects(events.SESSION_STARTED)
def start_session(event: Event[events.SessionStarted]) -> None:
    payload = event.payload
    rows.insert(
        models.Session,
        id=event.position,
        session_id=payload.session_id,
        purpose=payload.purpose,
        mode=payload.mode,
        status=models.SessionStatus.ACTIVE,
        directory=payload.directory,
        agent=payload.agent,
        started_at=_moment(payload.started_at, event),
    )


@projects(events.SESSION_ENDED)
def end_session(event: Event[events.SessionEnded]) -> None:
    rows.execute(
        "UPDATE sessions_app_session SET status = %s, summary = %s, ended_at = %s WHERE session_id = %s",
        [
            event.payload.status,
            event.payload.summary,
            rows.time_value(_moment(event.payload.ended_at, event)),
            event.payload.session_id,
        ],
    )


@projects(events.SESSION_PAUSED, events.SESSION_RESUMED)
def pause_or_resume(event: Event[events.SessionTouched]) -> None:
    status = models.SessionStatus.PAUSED if event.type == events.SESSION_PAUSED.name else models.SessionStatus.ACTIVE
    rows.execute(
        "UPDATE sessions_app_session SET status = %s, ended_at = NULL WHERE session_id = %s",
        [status, event.payload.session_id],
    )


def _moment(time: str | None, event: Event[Any]) -> datetime:
    if time:
        return clock.from_text(time)
    return event.occurred_at


@projects(events.PROJECT_CONFIGURED)
def configure(event: Event[events.ProjectConfigured]) -> None:
    for name, value in event.payload.settings.items():
        rows.execute("DELETE FROM sessions_app_setting WHERE name = %s", [name])
        if value is not None:
            rows.insert(models.Setting, name=name, value=value)


# Runs for every event of a turn: plain SQL (decision 5).
_KEEP_OPEN = "SELECT id, ack_seconds FROM sessions_app_turn WHERE session_id = %s AND turn_id = %s AND status = 'open'"


@projects(events.TURN_BEGAN)
def begin(event: Event[events.TurnBegan]) -> None:
    payload = event.payload
    rows.insert(
        models.Turn,
        id=event.position,
        session_id=payload.session_id,
        turn_id=payload.turn_id,
        status=models.TurnStatus.OPEN,
        automatic=payload.automatic,
        ack_token_hash=payload.ack_token_hash,
        ack_seconds=payload.ack_seconds,
        expires_at=event.occurred_at + timedelta(seconds=payload.ack_seconds),
        began_at=_moment(payload.began_at, event),
        actor=event.actor,
        event_count=0,
    )


@projects(events.TURN_ENDED)
def end(event: Event[events.TurnEnded]) -> None:
    _close(event, models.TurnStatus.CLOSED, event.payload.summary, event.payload.ended_at)


@projects(events.TURN_EXPIRED)
def expire(event: Event[events.TurnExpired]) -> None:
    _close(event, models.TurnStatus.INCOMPLETE, "")


def _close(event: Event[Any], status: models.TurnStatus, summary: str, ended_at: str | None = None) -> None:
    rows.execute(
        "UPDATE sessions_app_turn SET status = %s, ended_at = %s, summary = %s WHERE session_id = %s AND turn_id = %s",
        [status, rows.time_value(_moment(ended_at, event)), summary, event.payload.session_id, event.payload.turn_id],
    )


# Each event of an open turn restarts its timeout.
@project_headers
def keep_open(event: Event[Any]) -> None:
    if not event.turn_id or event.type == events.TURN_BEGAN.name:
        return
    for turn, seconds in rows.fetch(_KEEP_OPEN, [event.session_id, event.turn_id]):
        rows.execute(
            "UPDATE sessions_app_turn SET event_count = event_count + 1, expires_at = %s WHERE id = %s",
            [rows.time_value(event.occurred_at + timedelta(seconds=seconds)), turn],
        )


@projects(events.COMMIT_RECORDED)
def record_commit(event: Event[events.CommitRecorded]) -> None:
    payload = event.payload
    iteration_id = payload.iteration_id
    if not iteration_id:
        active = [models.IterationStatus.ACTIVE]
        iteration_id = rows.column("SELECT max(id) FROM sessions_app_iteration WHERE status = %s", active)[0]
    rows.insert(
        models.Commit,
        id=event.position,
        sha=payload.sha,
        message=payload.message,
        author=payload.author,
        committed_at=clock.from_text(payload.committed_at),
        insertions=sum(file.insertions or 0 for file in payload.files),
        deletions=sum(file.deletions or 0 for file in payload.files),
        iteration_id=iteration_id,
        files=[file.model_dump() for file in payload.files],
    )


@projects(events.COMMIT_LINKED)
def move_commit(event: Event[events.CommitLinked]) -> None:
    if event.payload.iteration_id is not None:
        rows.update(models.Commit, event.payload.commit_id, iteration_id=event.payload.iteration_id)


@projects(events.ITERATION_STARTED)
def start_iteration(event: Event[events.IterationStarted]) -> None:
    rows.insert(
        models.Iteration,
        id=event.position,
        command=event.payload.command,
        description=event.payload.description,
        status=models.IterationStatus.ACTIVE,
        session_id=event.session_id,
        started_at=event.occurred_at,
    )


@projects(events.ITERATION_ADVANCED)
def advance_iteration(event: Event[events.IterationAdvanced]) -> None:
    payload = event.payload
    completed_json, artifacts_json = rows.fetch(
        "SELECT phases_completed, artifacts FROM sessions_app_iteration WHERE id = %s", [payload.iteration_id]
    )[0]
    completed = json.loads(completed_json)
    if payload.completed:
        completed.append(payload.completed)
    rows.update(
        models.Iteration,
        payload.iteration_id,
        phase=payload.phase,
        phases_completed=completed,
        artifacts=[*json.loads(artifacts_json), *payload.artifacts],
    )


@projects(events.ITERATION_COMPLETED, events.ITERATION_ABANDONED)
def end_iteration(event: Event[events.IterationEnded]) -> None:
    is_completed = event.type == events.ITERATION_COMPLETED.name
    rows.update(
        models.Iteration,
        event.payload.iteration_id,
        status=models.IterationStatus.COMPLETED if is_completed else models.IterationStatus.ABANDONED,
        outcome=event.payload.outcome,
        ended_at=event.occurred_at,
        end_position=event.position,
    )


@projects(PAYLOAD_ERASED)
def remove_erased(event: Event[PayloadErased]) -> None:
    for position in event.payload.positions:
        for table in ("session", "turn", "iteration", "commit", "profile"):
            rows.execute(f"DELETE FROM sessions_app_{table} WHERE id = %s", [position])


@projects(events.PROJECT_DESCRIBED)
def describe(event: Event[events.ProjectDescribed]) -> None:
    changes = {name: getattr(event.payload, name) for name in sorted(event.payload.model_fields_set)}
    existing = rows.fetch("SELECT id FROM sessions_app_profile")
    if existing:
        rows.update(models.Profile, existing[0][0], **changes, updated_at=event.occurred_at)
    else:
        rows.insert(models.Profile, id=event.position, **changes, updated_at=event.occurred_at)
