from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Q
from django.db.transaction import on_commit

from memoryhub.config.current_settings import project_settings
from memoryhub.config.retention_rules import EndedWith, TurnPolicy
from memoryhub.core import clock, ids, log
from memoryhub.core.contributions import close_session, promote_entries, scratch_entries
from memoryhub.core.errors import ChoiceRequired, ConflictError, Invalid, NotFound
from memoryhub.core.events.event_types import EventType, TurnRule
from memoryhub.core.origin import Origin, current_origin, kept_folder, use_origin
from memoryhub.core.stores import rows
from memoryhub.core.stores.routing import require_current_alias
from memoryhub.core.stores.store import StoreId, current_store
from memoryhub.core.text import counted, flat
from sessions_app import events
from sessions_app.models import Session, SessionMode, SessionStatus, Turn, TurnStatus
from sessions_app.schemas import SessionEnd, SessionStart, SessionTouch
from sessions_app.selectors import metadata_of
from sessions_app.services.turns import automatic_turn, close_turn, in_turn


def start_session(*, command: SessionStart) -> Session:
    """Start a session and return it.

    Raises:
        ConflictError: a session of that name exists.
    """
    name = command.session_id or _unstarted_session_of_origin() or ids.short_id()
    optional: dict[str, Any] = {}
    if command.metadata:
        optional["metadata"] = command.metadata.model_dump(mode="json", exclude_unset=True)
    if (held_out := assign_held_out(name)) is not None:
        optional["held_out"] = held_out
    payload = events.SessionStarted(
        session_id=name,
        purpose=command.purpose,
        mode=command.mode,
        directory=kept_folder(command.directory),
        agent=command.agent or current_origin().actor,
        **optional,
    )
    draft = log.prepare(events.SESSION_STARTED, payload)
    with log.transaction():
        first = log.find_by_key(command.idempotency_key, events.SESSION_STARTED)
        if first:
            return _session_of_key(first.stream_id)
        existing = Session.objects.filter(session_id=draft.payload.session_id).first()
        if existing:
            raise ConflictError(
                f"session {existing.session_id!r} already exists; omit session_id to get a new one", id=existing.id
            )
        event = log.append(draft, stream=f"session:{draft.payload.session_id}", idempotency_key=command.idempotency_key)
        return find_session(session_id=event.payload.session_id)


def continue_session(command: SessionStart) -> None:
    """Start the session unless it exists, and resume it unless it is active. ``session_id`` must be given."""
    session: Session | None = Session.objects.filter(session_id=command.session_id).first()
    if session is None:
        start_session(command=command)
    elif session.status != SessionStatus.ACTIVE:
        draft = log.prepare(events.SESSION_RESUMED, events.SessionTouched(session_id=session.session_id))
        log.append(draft, stream=f"session:{session.session_id}", idempotency_key=command.idempotency_key)


# The name of the connection's session, or "" if that session has started.
def _unstarted_session_of_origin() -> str:
    name = current_origin().session_id
    if Session.objects.filter(session_id=name).exists():
        return ""
    return name


def _session_of_key(stream: str) -> Session:
    return find_session(session_id=stream.removeprefix("session:"))


def end_session(*, command: SessionEnd) -> Session:
    """End a session with its summary and return it.

    Raises:
        NotFound: there is no such session, or none is active.
        ConflictError: it has already ended.
        Invalid: several are active and none was named.
        ChoiceRequired: a scratch session's entries, which are in the data, must be promoted or discarded.
        PreconditionFailed: the turn policy is strict, and the caller has no open turn.
    """
    with log.transaction():
        first = log.find_by_key(command.idempotency_key, events.SESSION_ENDED)
        if first:
            return _session_of_key(first.stream_id)
        origin = in_turn(current_origin())
        session = _session_to_end(command.session_id or origin.session_id)
        draft = log.prepare(events.SESSION_ENDED, _ended(session, command))
        if session.mode == SessionMode.SCRATCH:
            ended = draft.payload
            entries = list(scratch_entries(session.session_id))
            if ended.entries is not EndedWith.PROMOTE:
                entries = [entry for entry in entries if entry in ended.kept]
            with use_origin(session_id=session.session_id):
                promote_entries(entries)
        close_after_commit(session.session_id)
        _close_turns(session)
        log.append(draft, stream=f"session:{session.session_id}", idempotency_key=command.idempotency_key)
        return find_session(session_id=session.session_id)


def close_after_commit(session_id: str) -> None:
    """Do what belongs to the end or compaction of a session once it is stored, without the store's write lock."""
    on_commit(lambda: close_session(session_id, asks=False), using=require_current_alias(), robust=True)


def _ended(session: Session, command: SessionEnd) -> events.SessionEnded:
    entries = _fate_of_entries(session, command)
    if command.keep and entries is not EndedWith.DISCARD:
        raise Invalid("keep applies only to a scratch session that is discarded; omit it")
    return events.SessionEnded(
        session_id=session.session_id,
        status=SessionStatus.DISCARDED if command.discard else SessionStatus.COMPLETED,
        summary=command.summary,
        entries=entries,
        kept=sorted(set(command.keep)),
    )


def _fate_of_entries(session: Session, command: SessionEnd) -> EndedWith | None:
    if command.promote and command.discard:
        raise Invalid("promote and discard exclude each other; send one, or discard=true with keep")
    if session.mode != SessionMode.SCRATCH:
        if command.discard:
            raise Invalid(f"session {session.session_id!r} is a working period, whose entries are kept; omit discard")
        return None
    if command.discard:
        return EndedWith.DISCARD
    entries = _undecided(session)
    if entries and not command.promote:
        raise ChoiceRequired(
            f"session {session.session_id!r} is a scratch session with {counted(len(entries), 'entry', 'entries')}",
            "ask the user, then end it with promote=true, or with discard=true and the ids to promote in keep",
            choices=("promote", "discard"),
            entries=[f"#{entry} {title}" for entry, title in entries.items()],
        )
    return EndedWith.PROMOTE


def _undecided(session: Session) -> dict[int, str]:
    """Return the entries of a scratch session that must not be promoted without being asked for."""
    if session.mode != SessionMode.SCRATCH or metadata_of([session.id]).get(session.id, {}).get("auto_promote"):
        return {}
    return scratch_entries(session.session_id)


def end_unattended(*, command: SessionEnd) -> Session:
    """End a session whose client has left, or pause it where somebody must decide about a scratch session's entries."""
    with log.transaction():
        session = _session_to_end(command.session_id or "")
        if _undecided(session):
            return pause_session(command=SessionTouch(session_id=session.session_id))
        return end_session(command=command)


def _close_turns(session: Session) -> None:
    for turn in Turn.objects.filter(session_id=session.session_id, status=TurnStatus.OPEN).order_by("id"):
        close_turn(turn)


def pause_session(*, command: SessionTouch) -> Session:
    """Pause an active session, and close its open turns.

    Raises:
        NotFound: there is no such session.
        ConflictError: it is not active.
    """
    return _touch(command, events.SESSION_PAUSED, SessionStatus.ACTIVE)


def resume_session(*, command: SessionTouch) -> Session:
    """Resume a paused session.

    Raises:
        NotFound: there is no such session.
        ConflictError: it is not paused.
    """
    return _touch(command, events.SESSION_RESUMED, SessionStatus.PAUSED)


def _touch(command: SessionTouch, event_type: EventType[events.SessionTouched], required: SessionStatus) -> Session:
    with log.transaction():
        name = command.session_id or current_origin().session_id
        if not name:
            raise NotFound("this connection has no session; name one in session_id, or begin one with session_start")
        session = find_session(session_id=name)
        if session.status != required:
            raise ConflictError(f"session {session.session_id!r} is {session.status}, not {required}", id=session.id)
        if event_type is events.SESSION_PAUSED:
            _close_turns(session)  # so that a write needs another turn, whose beginning resumes the session
        payload = events.SessionTouched(session_id=session.session_id)
        log.append(log.prepare(event_type, payload), stream=f"session:{session.session_id}")
        return find_session(session_id=session.session_id)


def end_idle_sessions() -> int:
    """End the sessions without an event for ``session_idle_hours``, as ``end_unattended`` does; return how many."""
    timeout = timedelta(hours=project_settings().session_idle_hours)
    with log.transaction():
        limit = clock.now() - timeout
        old = Q(started_at__lt=limit) | Q(started_at__gt=clock.now() + clock.MISDATED_AFTER)
        active = Session.objects.filter(old, status=SessionStatus.ACTIVE).order_by("id")
        idle = [session for session in active if _is_idle(session, limit)]
        for session in idle:
            with use_origin(session_id=session.session_id):
                counts = log.events().of_session(session.session_id).count_by_type()
                tally = ", ".join(f"{count} {name}" for name, count in counts.items()) or "none"
                summary = f"Ended by the hub after being idle. Events: {tally}."
                end_unattended(command=SessionEnd(session_id=session.session_id, summary=summary))
    return len(idle)


def _is_idle(session: Session, limit: datetime) -> bool:
    occurred_at = log.events().of_session(session.session_id).values_list("occurred_at", flat=True).last()
    last = clock.from_text(occurred_at) if occurred_at else session.started_at
    return last < limit or clock.is_misdated(last)


def find_session(*, session_id: str) -> Session:
    """Return the session of that name.

    Raises:
        NotFound: there is none.
    """
    session: Session | None = Session.objects.filter(session_id=session_id).first()
    if session is None:
        raise NotFound(f"there is no session {session_id!r}; list sessions to see the names")
    return session


def _session_to_end(name: str) -> Session:
    if name:
        session = find_session(session_id=name)
        if session.status not in (SessionStatus.ACTIVE, SessionStatus.PAUSED):
            raise ConflictError(f"session {session.session_id!r} is already {session.status}", id=session.id)
        return session
    active: list[Session] = list(Session.objects.filter(status=SessionStatus.ACTIVE).order_by("-id")[:10])
    if not active:
        raise NotFound("no session is active; start one first")
    if len(active) > 1:
        choices = [session.session_id for session in active]
        raise Invalid("several sessions are active; name one in session_id", choices=choices)
    return active[0]


def assign_held_out(session_id: str) -> bool | None:
    """Return whether memory is held out of a new session, to measure its worth; None while none is (decision 62)."""
    percent = project_settings().held_out_percent
    if not percent:
        return None
    return held_out_share(session_id) < percent / 100


def held_out_share(session_id: str) -> float:
    """Return a number from 0 to 1 that depends only on the project and the session's name."""
    key = hashlib.sha256(str(current_store().name).encode()).digest()
    digest = hashlib.blake2b(session_id.encode(), key=key, digest_size=8, person=b"held-out").digest()
    return int.from_bytes(digest) / 2**64


def is_held_out(session_id: str) -> bool:
    """Return whether the event that started a session records that memory is held out of it."""
    begun = log.events().filter(position__in=Session.objects.filter(session_id=session_id).values("id"))
    return any(payload.get("held_out") is True for payload in begun.payloads().values())


# Where an automatic turn is, for clients that keep none (decision 10)
@dataclass(frozen=True, slots=True)
class TurnPlace:
    """The session and turn of a client's writes; empty if the client keeps its own turns."""

    session_id: str
    turn_id: str


@dataclass(slots=True)
class _Planned:
    """The turn begins with its first event (decision 34)."""

    place: TurnPlace
    store: StoreId
    agent: str
    directory: str
    # An event of the call went to another store, such as the global one.
    is_written_elsewhere: bool = False


_planned: ContextVar[_Planned | None] = ContextVar("planned_turn", default=None)


@contextmanager
def entered_turn(
    *, session_id: str, agent: str, directory: str, is_of_window: bool = False, new_session: str = ""
) -> Iterator[TurnPlace]:
    """Yield the session and turn for a client's writes inside the block.

    Both begin with the first event that is written: a call that is refused or changes nothing leaves the log unchanged.

    Args:
        session_id: the session that the client was started in, or "".
        is_of_window: whether hooks named the session of the client's window, which then goes on even if it was ended.
        agent: the client's name.
        directory: its working folder.
        new_session: the id of the session that begins here if there is none; "" for any.
    """
    agent, directory = flat(agent), flat(directory)
    turn_id = _open_turn(session_id)
    if turn_id:
        yield TurnPlace(session_id, turn_id)
        return
    if project_settings().turn_policy is TurnPolicy.STRICT:
        yield TurnPlace(session_id, "")
        return
    # A session that was ended is only continued if the client's window is still in it. Sessions are never shared by
    # name of the client and folder: two windows would be one session, and the evidence wrong.
    session_id = session_id or new_session
    if not session_id or (_has_ended(session_id) and not is_of_window):
        session_id = ids.short_id()
    place = TurnPlace(session_id, ids.short_id())
    planned = _Planned(place, current_store(), agent, directory)
    token = _planned.set(planned)
    try:
        yield place
        if planned.is_written_elsewhere:
            _begin_planned(planned)
    finally:
        _planned.reset(token)


@log.guard
def begin_planned_turn(event_type: EventType[Any], origin: Origin) -> Origin:
    """Begin the planned turn before its first event."""
    planned = _planned.get()
    if planned is None or event_type.turn is TurnRule.NONE:
        return origin
    if current_store() != planned.store:
        planned.is_written_elsewhere = True
        return origin
    return replace(origin, turn_id=_open_turn(planned.place.session_id) or _begin_planned(planned))


def _begin_planned(planned: _Planned) -> str:
    name = planned.place.session_id
    with log.transaction(), use_origin(session_id="", turn_id=""):
        continue_session(SessionStart(session_id=name, agent=planned.agent, directory=planned.directory))
        return automatic_turn(session_id=name, turn_id=planned.place.turn_id).turn_id


# Raw SQL: every call of a client reads it
def _open_turn(session_id: str) -> str | None:
    turn_ids = rows.column(
        "SELECT turn_id FROM sessions_app_turn WHERE session_id = %s AND status = 'open' AND automatic "
        "AND expires_at > %s ORDER BY id DESC LIMIT 1",
        [session_id, rows.time_value(clock.now())],
    )
    return turn_ids[0] if turn_ids else None


def _has_ended(session_id: str) -> bool:
    session = Session.objects.filter(session_id=session_id).first()
    return session is not None and session.status not in (SessionStatus.ACTIVE, SessionStatus.PAUSED)


def leave_turn(*, place: TurnPlace) -> None:
    """Close the automatic turn of a client that disconnects, if it is still open."""
    with log.transaction():
        turn = Turn.objects.filter(session_id=place.session_id, turn_id=place.turn_id, status=TurnStatus.OPEN).first()
        if turn and turn.automatic:
            close_turn(turn)
