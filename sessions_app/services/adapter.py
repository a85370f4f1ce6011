"""The turns that the hub keeps for a client which keeps none: opened at its first write, closed when it leaves."""

from __future__ import annotations

from dataclasses import dataclass

from memoryhub.core import clock, log, rows
from memoryhub.core.origin import use_origin
from memoryhub.core.wording import flat
from sessions_app.choices import TurnPolicy
from sessions_app.models import Session, SessionStatus, Turn, TurnStatus
from sessions_app.schemas import SessionStart
from sessions_app.services.sessions import start_session
from sessions_app.services.turns import automatic_turn, close_turn
from sessions_app.settings import project_settings


@dataclass(frozen=True, slots=True)
class Place:
    """The session and the turn that a write belongs to; empty where the client keeps them itself."""

    session_id: str
    turn_id: str


def enter_turn(*, session_id: str, agent: str, directory: str) -> Place:
    """Return where a client's write belongs, where the hub keeps the turns; begin session and turn if need be.

    Args:
        session_id: the session that the client was started in, or empty.
        agent: the client's name.
        directory: the folder it works in.
    """
    known = _open_turn(session_id)
    if known:
        return Place(session_id, known)
    if project_settings().turn_policy is TurnPolicy.STRICT:
        return Place(session_id, "")
    with log.transaction():
        name = _session(session_id, agent, directory)
        return Place(name, automatic_turn(session_id=name).turn_id)


def _open_turn(session_id: str) -> str | None:
    found = rows.fetch(
        "SELECT turn_id FROM sessions_app_turn WHERE session_id = %s AND status = 'open' AND automatic "
        "AND expires_at > %s ORDER BY id DESC LIMIT 1",
        [session_id, rows.time_value(clock.now())],
    )
    return found[0][0] if found else None


def _session(name: str, agent: str, directory: str) -> str:
    """Return the active session of that name, the one that this agent has open, or a new one."""
    agent, directory = flat(agent), flat(directory)
    active = Session.objects.filter(status=SessionStatus.ACTIVE)
    if name and active.filter(session_id=name).exists():
        return name
    if name and not Session.objects.filter(session_id=name).exists():
        return _start(name, agent, directory)
    open_ones = list(active.filter(agent=agent, directory=directory).values_list("session_id", flat=True)[:2])
    return str(open_ones[0]) if len(open_ones) == 1 else _start(None, agent, directory)


def _start(name: str | None, agent: str, directory: str) -> str:
    with use_origin(session_id=""):
        command = SessionStart(session_id=name, agent=agent, directory=directory)
        return str(start_session(command=command).session_id)


def leave_turn(*, place: Place) -> None:
    """Close the turn that a client which goes away has left open, if it still is."""
    with log.transaction():
        turn = Turn.objects.filter(session_id=place.session_id, turn_id=place.turn_id, status=TurnStatus.OPEN).first()
        if turn and turn.automatic:
            close_turn(turn)
