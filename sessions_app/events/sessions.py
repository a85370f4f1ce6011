"""What can happen to sessions, and to the settings of a project."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from pydantic import Field, JsonValue

from memoryhub.core.event_types import EventGroup, Retention, TurnRule, define_event
from memoryhub.core.permissions import Act
from memoryhub.core.rollback import Effect, Values, define_effect, reverses, sets_aside, stays
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


def _purpose(payload: Mapping[str, Any]) -> str:
    return str(payload.get("purpose") or payload.get("agent") or payload.get("session_id", ""))


def _outcome(payload: Mapping[str, Any]) -> str:
    return str(payload.get("summary") or payload.get("status", ""))


def _name(payload: Mapping[str, Any]) -> str:
    return str(payload.get("session_id", ""))


def _settings(payload: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in payload.get("settings", {}).items())


SESSIONS = EventGroup("sessions", "Sessions and turns", 10, "session")
SETTINGS = EventGroup("settings", "Settings and description", 80)

_BEGUN_OR_ENDED = sets_aside("sessions", "Sessions begun or ended", order=190, is_cited=True)
_STATE_STAYS = stays("the session keeps the state that it has now")

_define = partial(
    define_event, group=SESSIONS, retention=Retention.WITH_STREAM, changes_stream=False, turn=TurnRule.NONE
)

SESSION_STARTED = _define(
    "session.started", SessionStarted, label="Session started", rollback=_BEGUN_OR_ENDED, about=_purpose
)
SESSION_ENDED = _define("session.ended", SessionEnded, label="Session ended", rollback=_BEGUN_OR_ENDED, about=_outcome)
SESSION_PAUSED = _define("session.paused", SessionTouched, label="Session paused", rollback=_STATE_STAYS, about=_name)
SESSION_RESUMED = _define(
    "session.resumed", SessionTouched, label="Session resumed", rollback=_STATE_STAYS, about=_name
)
PROJECT_CONFIGURED = define_event(
    "project.configured",
    ProjectConfigured,
    label="Settings",
    group=SETTINGS,
    retention=Retention.KEPT,
    rollback=reverses("settings", "Settings changed", order=150, by="configure", can_leave=False),
    changes_stream=False,
    act=Act.GOVERN,
    turn=TurnRule.OPTIONAL,
    about=_settings,
)

define_effect(
    Effect(
        "configure",
        90,
        "setting put back",
        Values(
            read=lambda _position, payload: payload.get("settings", {}),
            write=lambda step, _reason: ProjectConfigured(settings={step.name: step.after}),
        ),
    )
)
