"""Turns: begin, append to, end and expire them; calls that need an open turn are refused without one (decision 9)."""

from __future__ import annotations

import difflib
import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import Enum
from typing import Any

from django.db.models import Q
from pydantic import ValidationError

from memoryhub.config.current_settings import project_settings
from memoryhub.config.retention_rules import TurnPolicy
from memoryhub.core import clock, counters, ids, log
from memoryhub.core.errors import ConflictError, Invalid, PreconditionFailed
from memoryhub.core.events.event_types import EventType, TurnRule
from memoryhub.core.events.event_types import event_type as event_type_named
from memoryhub.core.events.projection import Event
from memoryhub.core.origin import Origin, current_origin, use_origin
from memoryhub.core.stores import rows
from memoryhub.core.validation import explain
from sessions_app import events
from sessions_app.events.client import CUSTOM_RECORDED, client_event, client_events, outline
from sessions_app.models import Session, SessionStatus, Turn, TurnStatus
from sessions_app.schemas import EventAppend, TurnBegin, TurnEnd

# The sources that the turn policy applies to. The admin and the command line keep no turns.
CLIENT_DOORS = frozenset({"mcp", "rest"})
_TOKEN_BYTES = 24
_CUSTOM_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.:-]{0,63}")
# Similarity from which an unknown event type is taken for a known one
_MISSPELT = 0.85
# Runs at every turn's begin, where a queryset would cost as much as the write.
_ANY_EXPIRED = "SELECT 1 FROM sessions_app_turn WHERE status = 'open' AND (expires_at <= %s OR expires_at > %s) LIMIT 1"
# Longer than any turn lasts: it began when the clock was ahead
_MISDATED = clock.MISDATED_AFTER + timedelta(days=1)


@dataclass(frozen=True, slots=True)
class NewTurn:
    """A new turn with its token, which is shown once and never stored."""

    turn: Turn
    ack_token: str


def begin_turn(*, command: TurnBegin) -> NewTurn:
    """Begin a turn and return its token, which expires when the turn is idle for too long.

    A session of a new name begins with it.

    Raises:
        PreconditionFailed: no session is named, or it is not active.
        ConflictError: the session already has a turn of that name.
    """
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    with log.transaction():
        session = _active_session(command.session_id or current_origin().session_id)
        expire_turns()
        name = command.turn_id or ids.short_id()
        if Turn.objects.filter(session_id=session.session_id, turn_id=name).exists():
            raise ConflictError(f"session {session.session_id!r} already has a turn {name!r}; choose another turn_id")
        turn = _begin_turn(session.session_id, name, token_hash=_hash(token))
    return NewTurn(turn, token)


def _active_session(name: str) -> Session:
    if not name:
        raise _refuse(TurnRefusal.NO_SESSION)
    draft = log.prepare(events.SESSION_STARTED, events.SessionStarted(session_id=name, agent=current_origin().actor))
    # By the sanitised name, which is the one that was stored
    session: Session | None = Session.objects.filter(session_id=draft.payload.session_id).first()
    if session is None:
        with use_origin(session_id="", turn_id=""):
            event = log.append(draft, stream=f"session:{draft.payload.session_id}")
        session = Session.objects.get(id=event.position)
    elif session.status != SessionStatus.ACTIVE:
        raise _refuse(TurnRefusal.SESSION_ENDED, session=name)
    return session


def _begin_turn(session_id: str, turn_id: str, *, token_hash: str) -> Turn:
    payload = events.TurnBegan(
        session_id=session_id,
        turn_id=turn_id,
        ack_token_hash=token_hash,
        ack_seconds=project_settings().ack_token_minutes * 60,
        automatic=not token_hash,
    )
    with use_origin(session_id=session_id, turn_id=turn_id):
        event = log.append(log.prepare(events.TURN_BEGAN, payload), stream=stream_of_turn(session_id, turn_id))
    turn: Turn = Turn.objects.get(id=event.position)
    return turn


def append_event(*, command: EventAppend) -> Event[Any]:
    """Append an event to the turn of the given token.

    Raises:
        PreconditionFailed: the token is not that of an open turn; the message names the next step.
        Invalid: the type is one that the hub appends, or a known one misspelt (the data lists them), or the payload
            does not match it.
    """
    with log.transaction():
        turn = require_open_turn(command.ack_token, session_id=command.session_id, turn_id=command.turn_id)
        first = log.find_by_key(command.idempotency_key, *client_events().values())
        if first:
            return log.event_of(first)
        payload = command.payload
        if command.phase:
            payload = {"phase": command.phase, **payload}
        trace_id = command.trace_id or current_origin().trace_id
        with use_origin(ack_token=command.ack_token or "", trace_id=trace_id):
            return _append_to_turn(turn, command.type, payload, command.idempotency_key)


def _append_to_turn(turn: Turn, name: str, payload: dict[str, Any], key: str | None = None) -> Event[Any]:
    event_type = client_event(name)
    if event_type is None:
        event_type, payload = CUSTOM_RECORDED, {"type": _custom_name(name), "payload": payload}
    try:
        fields = event_type.schema.model_validate(payload)
        draft = log.prepare(event_type, fields)
    except ValidationError as error:
        known_fields = f"it takes {outline(event_type.schema)} and fields of your own"
        raise Invalid(f"payload of {event_type.name}: {explain(error)}; {known_fields}") from error
    if written_at := getattr(fields, "written_at", None):
        try:
            clock.from_text(written_at)
        except ValueError as error:
            raise Invalid(f"'written_at' is no time: {written_at}") from error
    with use_origin(session_id=turn.session_id, turn_id=turn.turn_id):
        return log.append(draft, stream=stream_of_turn(turn.session_id, turn.turn_id), idempotency_key=key)


def _custom_name(name: str) -> str:
    names = sorted(client_events())
    nearest = difflib.get_close_matches(name.replace("_", ".", 1), names, n=1, cutoff=_MISSPELT)
    if nearest:
        raise Invalid(f"{name[:64]!r} is not an event type; did you mean {nearest[0]}?", known=names)
    if event_type_named(name) or not _CUSTOM_NAME.fullmatch(name):
        raise Invalid(
            f"{name[:64]!r} is not an event type that clients append; use a known one, or a word of your own such as "
            "deploy_started",
            known=names,
        )
    return name


def end_turn(*, command: TurnEnd) -> Turn:
    """Close the turn of the given token.

    Raises:
        PreconditionFailed: the token is not that of an open turn.
    """
    with log.transaction():
        turn = require_open_turn(command.ack_token, session_id=command.session_id, turn_id=command.turn_id)
        return close_turn(turn, summary=command.summary)


def close_turn(turn: Turn, *, summary: str = "", idempotency_key: str | None = None) -> Turn:
    """Close an open turn and return it."""
    payload = events.TurnEnded(session_id=turn.session_id, turn_id=turn.turn_id, summary=summary)
    with log.transaction(), use_origin(session_id=turn.session_id, turn_id=turn.turn_id):
        stream = stream_of_turn(turn.session_id, turn.turn_id)
        log.append(log.prepare(events.TURN_ENDED, payload), stream=stream, idempotency_key=idempotency_key)
    closed: Turn = Turn.objects.get(id=turn.id)
    return closed


def require_open_turn(token: str | None, *, session_id: str | None = None, turn_id: str | None = None) -> Turn:
    """Return the open turn that ``token``, by default the origin's, was issued for.

    Raises:
        PreconditionFailed: there is none, it is another turn, or it is no longer open.
    """
    token = token or current_origin().ack_token
    if not token:
        raise _refuse(TurnRefusal.NO_TOKEN)
    digest = _hash(token)
    turn: Turn | None = Turn.objects.filter(ack_token_hash=digest).first()
    if turn is None or not hmac.compare_digest(turn.ack_token_hash, digest):
        raise _refuse(TurnRefusal.WRONG_TOKEN)
    if session_id and session_id != turn.session_id:
        raise _refuse(TurnRefusal.OTHER_SESSION, session=turn.session_id)
    if turn_id and turn_id != turn.turn_id:
        raise _refuse(TurnRefusal.OTHER_TURN, turn=turn_id)
    if turn.status == TurnStatus.CLOSED:
        raise _refuse(TurnRefusal.CLOSED, turn=turn.turn_id)
    if turn.status == TurnStatus.INCOMPLETE:
        raise _refuse(TurnRefusal.INCOMPLETE, turn=turn.turn_id)
    if turn.expires_at <= clock.now():
        raise _refuse(TurnRefusal.EXPIRED)
    session = Session.objects.filter(session_id=turn.session_id).first()
    if session is None or session.status != SessionStatus.ACTIVE:
        raise _refuse(TurnRefusal.SESSION_ENDED, session=turn.session_id)
    return turn


def in_turn(origin: Origin) -> Origin:
    """Return the origin of a client's write with the ids of its open turn, if it has to have one.

    Raises:
        PreconditionFailed: the turn policy is strict, or a token was sent, and it is not that of an open turn.
    """
    if origin.source not in CLIENT_DOORS:
        return origin
    if not origin.ack_token and project_settings().turn_policy is not TurnPolicy.STRICT:
        return origin
    turn = require_open_turn(origin.ack_token)
    return replace(origin, session_id=turn.session_id, turn_id=turn.turn_id)


def has_expired_turns() -> bool:
    """Return whether ``expire_turns`` would mark any turn as incomplete."""
    now = clock.now()
    return bool(rows.fetch(_ANY_EXPIRED, [rows.time_value(now), rows.time_value(now + _MISDATED)]))


def expire_turns() -> int:
    """Mark timed-out turns as incomplete and return how many there were."""
    with log.transaction():
        if not has_expired_turns():
            return 0
        now = clock.now()
        outside = Q(expires_at__lte=now) | Q(expires_at__gt=now + _MISDATED)
        expired = list(Turn.objects.filter(outside, status=TurnStatus.OPEN).order_by("id"))
        for turn in expired:
            payload = events.TurnExpired(session_id=turn.session_id, turn_id=turn.turn_id)
            with use_origin(session_id=turn.session_id, turn_id=turn.turn_id, ack_token=""):
                stream = stream_of_turn(turn.session_id, turn.turn_id)
                log.append(log.prepare(events.TURN_EXPIRED, payload), stream=stream)
    return len(expired)


def automatic_turn(*, session_id: str, turn_id: str = "") -> Turn:
    """Return the session's open automatic turn; begin one, named ``turn_id``, if there is none."""
    with log.transaction():
        expire_turns()
        open_turns = Turn.objects.filter(session_id=session_id, status=TurnStatus.OPEN, automatic=True)
        turn: Turn | None = open_turns.order_by("-id").first()
        return turn or _begin_turn(session_id, turn_id or ids.short_id(), token_hash="")


def append_automatically(
    *,
    turn: Turn,
    type: str,  # noqa: A002 - the field's name
    payload: dict[str, Any],
    idempotency_key: str | None = None,
) -> Event[Any]:
    """Append a client's event to an automatic turn.

    Raises:
        Invalid: as ``append_event``.
    """
    with log.transaction():
        return _append_to_turn(turn, type, payload, idempotency_key)


def stream_of_turn(session_id: str, turn_id: str) -> str:
    """Return the stream of a turn. Stream ids have at most 200 characters; a digest replaces longer names."""
    name = f"turn:{session_id}/{turn_id}"
    if len(name) > 190:
        name = f"turn:{hashlib.sha256(name.encode()).hexdigest()}"
    return name


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


@log.guard
def require_turn(event_type: EventType[Any], origin: Origin) -> Origin:
    """Check the turn of a client's write, and add the turn's ids to the origin."""
    if event_type.turn is TurnRule.REQUIRED:
        return in_turn(origin)
    return origin


class TurnRefusal(Enum):
    """Why a call that needs an open turn is refused: each names the next step."""

    NO_TOKEN = "this needs the ack_token of an open turn; call turn_begin and send the token that it returns"  # noqa: S105
    WRONG_TOKEN = "ack_token is unknown in this project; call turn_begin and send the token that it returns"  # noqa: S105
    OTHER_TURN = "ack_token belongs to another turn; send the one that turn_begin returned for turn {turn!r}"
    OTHER_SESSION = "ack_token belongs to session {session!r}; call turn_begin in your own session"
    EXPIRED = "ack_token has expired; call turn_begin for a new turn"
    CLOSED = "turn {turn!r} has ended; call turn_begin for a new turn"
    INCOMPLETE = "turn {turn!r} timed out and is incomplete; call turn_begin for a new turn"
    NO_SESSION = "a turn belongs to a session; name its session_id, a new one begins it"
    SESSION_ENDED = "session {session!r} is not active; call session_start for a new one"

    @property
    def code(self) -> str:
        return self.name.lower()


REJECTIONS = counters.new_counter(
    "append_rejections", "Calls that were refused because a turn's precondition failed", "project", "reason"
)


def _refuse(reason: TurnRefusal, *, turn: str = "", session: str = "") -> PreconditionFailed:
    REJECTIONS.labels(counters.project_label(), reason.code).inc()
    return PreconditionFailed(reason.value.format(turn=turn, session=session), reason=reason.code)
