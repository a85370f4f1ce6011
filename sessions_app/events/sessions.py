"""Events of sessions, turns and project settings."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Literal

from pydantic import Field, JsonValue

from memoryhub.config.retention_rules import EndedWith
from memoryhub.core.entities import define_entity
from memoryhub.core.events.event_types import EventGroup, Retention, TurnRule, define_event
from memoryhub.core.events.rollback import NOTHING_DEPENDS, Effect, Values, define_effect, reverses, sets_aside, stays
from memoryhub.core.permissions import Act
from memoryhub.core.schemas import EventRef, Instant, Payload, Sha256
from sessions_app.models import SessionMode, SessionStatus


class SessionStarted(Payload):
    session_id: str = Field(min_length=1, max_length=220)
    purpose: str = ""
    mode: SessionMode = SessionMode.WORKING
    directory: str = ""
    agent: str = ""
    # As the client gave it; it may hold auto_promote.
    metadata: dict[str, JsonValue] = Field(default_factory=dict)
    # Whether memory is held out of the session; None if the project held out none
    held_out: bool | None = None
    # Of an imported session, which happened before its event; so have its end and its turns
    started_at: Instant | None = None


class SessionEnded(Payload):
    session_id: str
    status: SessionStatus
    summary: str = ""
    # What happens to the entries of a scratch session.
    entries: EndedWith | None = None
    # Ids of entries that are promoted even if the session is discarded.
    kept: list[EventRef] = Field(default_factory=list)
    ended_at: Instant | None = None


class SessionTouched(Payload):
    session_id: str


class ProjectConfigured(Payload):
    """Changed settings by name; None resets one to its default."""

    settings: dict[str, JsonValue]


def _purpose(payload: Mapping[str, Any]) -> str:
    return str(payload.get("purpose") or payload.get("agent") or payload.get("session_id", ""))


def _outcome(payload: Mapping[str, Any]) -> str:
    return str(payload.get("summary") or payload.get("status", ""))


def _name(payload: Mapping[str, Any]) -> str:
    return str(payload.get("session_id", ""))


def _settings(payload: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in payload.get("settings", {}).items())


define_entity(
    "session",
    "SELECT id, CASE purpose WHEN '' THEN session_id ELSE purpose END AS title, '' AS kind, false AS deleted "
    "FROM sessions_app_session",
    shown_by="session_list",
)
# The project itself has the id 0.
define_entity(
    "project",
    "SELECT 0 AS id, coalesce((SELECT name FROM sessions_app_profile LIMIT 1), '') AS title, '' AS kind, "
    "false AS deleted",
)

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
    is_local=True,
    by_pack_only=True,
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


class TurnBegan(Payload):
    """Only the hash of the token is stored; a turn that the hub opens itself has none."""

    session_id: str
    turn_id: str
    ack_token_hash: Sha256 | Literal[""] = ""
    ack_seconds: int
    automatic: bool = False
    began_at: Instant | None = None


class TurnEnded(Payload):
    session_id: str
    turn_id: str
    summary: str = ""
    ended_at: Instant | None = None


class TurnExpired(Payload):
    session_id: str
    turn_id: str


def _ended_about(payload: Mapping[str, Any]) -> str:
    return str(payload.get("summary", ""))


def _expired_about(_payload: Mapping[str, Any]) -> str:
    return "Timed out without an event; the turn is incomplete"


_TURN_BEGUN_OR_ENDED = sets_aside("turns", "Turns begun or ended", order=200)

_define_turn_event = partial(
    define_event, group=SESSIONS, retention=Retention.KEPT, changes_stream=False, turn=TurnRule.NONE
)

TURN_BEGAN = _define_turn_event(
    "turn.began", TurnBegan, label="Turn began", rollback=_TURN_BEGUN_OR_ENDED, nouns=("turn", "turns"), is_tallied=True
)
TURN_ENDED = _define_turn_event(
    "turn.ended", TurnEnded, label="Turn summary", rollback=_TURN_BEGUN_OR_ENDED, about=_ended_about
)
TURN_EXPIRED = _define_turn_event(
    "turn.expired",
    TurnExpired,
    label="Turn incomplete",
    rollback=NOTHING_DEPENDS,
    own_icon="clock",
    about=_expired_about,
)
