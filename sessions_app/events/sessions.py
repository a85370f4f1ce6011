"""What can happen to sessions, and to the settings of a project."""

from __future__ import annotations

from pydantic import Field, JsonValue

from memoryhub.core.projection import define_event, reverses, sets_aside, stays
from memoryhub.core.schemas import Payload
from sessions_app.choices import EndedWith
from sessions_app.models import SessionMode, SessionStatus


class SessionStarted(Payload):
    """A session began."""

    session_id: str = Field(min_length=1, max_length=220)
    purpose: str = ""
    mode: SessionMode = SessionMode.WORKING
    directory: str = ""
    agent: str = ""


class SessionEnded(Payload):
    """A session came to its end."""

    session_id: str
    status: SessionStatus
    summary: str = ""
    entries: EndedWith | None = None
    """What becomes of the entries of a scratch session."""
    kept: list[int] = Field(default_factory=list)
    """Entries that are promoted all the same."""


class SessionTouched(Payload):
    """A session was paused or resumed."""

    session_id: str


class ProjectConfigured(Payload):
    """Settings of the project were changed; None takes one back to its default."""

    settings: dict[str, JsonValue]


SESSION_STARTED = define_event("session.started", SessionStarted, rollback=sets_aside("sessions"), changes_stream=False)
SESSION_ENDED = define_event("session.ended", SessionEnded, rollback=sets_aside("sessions"), changes_stream=False)
SESSION_PAUSED = define_event(
    "session.paused",
    SessionTouched,
    rollback=stays("the session keeps the state that it has now"),
    changes_stream=False,
)
SESSION_RESUMED = define_event(
    "session.resumed",
    SessionTouched,
    rollback=stays("the session keeps the state that it has now"),
    changes_stream=False,
)
PROJECT_CONFIGURED = define_event(
    "project.configured", ProjectConfigured, rollback=reverses("settings"), changes_stream=False
)
