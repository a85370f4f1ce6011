"""Automatic turns for clients that keep none (decision 10)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

from memoryhub.config.current_settings import project_settings
from memoryhub.config.retention_rules import TurnPolicy
from memoryhub.core import clock, ids, log
from memoryhub.core.events.event_types import EventType, TurnRule
from memoryhub.core.origin import Origin, use_origin
from memoryhub.core.stores import rows
from memoryhub.core.stores.store import StoreId, current_store
from memoryhub.core.text import flat
from sessions_app.models import Session, SessionStatus, Turn, TurnStatus
from sessions_app.schemas import SessionStart
from sessions_app.services.sessions import continue_session
from sessions_app.services.turns import automatic_turn, close_turn


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
def entered_turn(*, session_id: str, agent: str, directory: str, is_of_window: bool = False) -> Iterator[TurnPlace]:
    """Yield the session and turn for a client's writes inside the block.

    Both begin with the first event that is written: a call that is refused or changes nothing leaves the log unchanged.

    Args:
        session_id: the session that the client was started in, or "".
        is_of_window: whether hooks named the session of the client's window, which then goes on even if it was ended.
        agent: the client's name.
        directory: its working folder.
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
