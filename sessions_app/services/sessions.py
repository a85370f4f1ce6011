"""What changes sessions."""

from __future__ import annotations

from memoryhub.core import ids, log
from memoryhub.core.errors import Conflict, Invalid, NotFound
from memoryhub.core.origin import current_origin
from sessions_app.events import (
    SESSION_ENDED,
    SESSION_STARTED,
    SessionEnded,
    SessionStarted,
)
from sessions_app.models import Session, SessionStatus
from sessions_app.schemas import SessionEnd, SessionStart


def start_session(*, command: SessionStart) -> Session:
    """Begin a session and return it.

    Raises:
        Conflict: a session of that name exists.
    """
    name = command.session_id or current_origin().session_id or ids.short_id()
    payload = SessionStarted(
        session_id=name,
        purpose=command.purpose,
        mode=command.mode,
        directory=command.directory,
        agent=command.agent or current_origin().actor,
    )
    draft = log.prepare(SESSION_STARTED, payload)
    with log.transaction():
        first = log.find_by_key(command.idempotency_key, SESSION_STARTED)
        if first:
            return _session_of_key(first.stream_id)
        _refuse_taken(draft.payload.session_id)
        event = log.append(draft, stream=f"session:{draft.payload.session_id}", idempotency_key=command.idempotency_key)
        return find_session(session_id=event.payload.session_id)


def _refuse_taken(name: str) -> None:
    existing = Session.objects.filter(session_id=name).first()
    if existing:
        raise Conflict(f"session {name!r} exists already; leave session_id out to get a new one", id=existing.id)


def _session_of_key(stream: str) -> Session:
    return find_session(session_id=stream.removeprefix("session:"))


def end_session(*, command: SessionEnd) -> Session:
    """End a session with its summary and return it.

    Raises:
        NotFound: there is no such session, or none is active.
        Conflict: it has ended already.
        Invalid: several are active and none was named.
    """
    with log.transaction():
        first = log.find_by_key(command.idempotency_key, SESSION_ENDED)
        if first:
            return _session_of_key(first.stream_id)
        session = _session_to_end(command.session_id)
        status = SessionStatus.DISCARDED if command.discard else SessionStatus.COMPLETED
        payload = SessionEnded(session_id=session.session_id, status=status, summary=command.summary)
        draft = log.prepare(SESSION_ENDED, payload)
        log.append(draft, stream=f"session:{session.session_id}", idempotency_key=command.idempotency_key)
        return find_session(session_id=session.session_id)


def find_session(*, session_id: str) -> Session:
    """Return the session of that name.

    Raises:
        NotFound: there is none.
    """
    session: Session | None = Session.objects.filter(session_id=session_id).first()
    if session is None:
        raise NotFound(f"there is no session {session_id!r}; list sessions to see the names")
    return session


def _session_to_end(name: str | None) -> Session:
    session = _named_or_only_active(name or current_origin().session_id)
    if session.status != SessionStatus.ACTIVE:
        raise Conflict(f"session {session.session_id!r} is {session.status} already", id=session.id)
    return session


def _named_or_only_active(name: str) -> Session:
    if name:
        return find_session(session_id=name)
    active: list[Session] = list(Session.objects.filter(status=SessionStatus.ACTIVE).order_by("-id")[:10])
    if not active:
        raise NotFound("no session is active; start one first")
    if len(active) > 1:
        choices = [session.session_id for session in active]
        raise Invalid("several sessions are active; name one in session_id", choices=choices)
    return active[0]
