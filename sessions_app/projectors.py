"""What is so, after what happened: sessions and commits."""

from __future__ import annotations

from memoryhub.core import clock, rows
from memoryhub.core.log import PAYLOAD_ERASED, PayloadErased
from memoryhub.core.projection import Event, projects
from sessions_app.events import (
    COMMIT_RECORDED,
    SESSION_ENDED,
    SESSION_STARTED,
    CommitRecorded,
    SessionEnded,
    SessionStarted,
)
from sessions_app.models import Commit, Session, SessionStatus


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


@projects(COMMIT_RECORDED)
def record_commit(event: Event[CommitRecorded]) -> None:
    """Add the commit."""
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
        files=[file.model_dump() for file in payload.files],
    )


@projects(PAYLOAD_ERASED)
def remove_erased(event: Event[PayloadErased]) -> None:
    """Drop the sessions and commits whose events lost their text."""
    for position in event.payload.positions:
        rows.execute("DELETE FROM sessions_app_session WHERE id = %s", [position])
        rows.execute("DELETE FROM sessions_app_commit WHERE id = %s", [position])
