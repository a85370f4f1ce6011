"""Sessions, and the settings of a project."""

from __future__ import annotations

from memoryhub.core import rows
from memoryhub.core.projection import Event, projects
from sessions_app.events import (
    PROJECT_CONFIGURED,
    SESSION_ENDED,
    SESSION_PAUSED,
    SESSION_RESUMED,
    SESSION_STARTED,
    ProjectConfigured,
    SessionEnded,
    SessionStarted,
    SessionTouched,
)
from sessions_app.models import Session, SessionStatus, Setting


@projects(SESSION_STARTED)
def start_session(event: Event[SessionStarted]) -> None:
    """Add the session."""
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
        started_at=event.occurred_at,
    )


@projects(SESSION_ENDED)
def end_session(event: Event[SessionEnded]) -> None:
    """Close the session with its summary."""
    rows.execute(
        "UPDATE sessions_app_session SET status = %s, summary = %s, ended_at = %s WHERE session_id = %s",
        [event.payload.status, event.payload.summary, rows.time_value(event.occurred_at), event.payload.session_id],
    )


@projects(SESSION_PAUSED, SESSION_RESUMED)
def pause_or_resume(event: Event[SessionTouched]) -> None:
    """Set the session aside, or take it up again."""
    status = SessionStatus.PAUSED if event.type == SESSION_PAUSED.name else SessionStatus.ACTIVE
    rows.execute(
        "UPDATE sessions_app_session SET status = %s, ended_at = NULL WHERE session_id = %s",
        [status, event.payload.session_id],
    )


@projects(PROJECT_CONFIGURED)
def configure(event: Event[ProjectConfigured]) -> None:
    """Set the settings that are given, and take back those that are None."""
    for name, value in event.payload.settings.items():
        rows.execute("DELETE FROM sessions_app_setting WHERE name = %s", [name])
        if value is not None:
            rows.insert(Setting, name=name, value=value)
