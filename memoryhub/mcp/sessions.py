"""The sessions that HTTP clients begin with a handshake: each belongs to a token and a project."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from memoryhub.core.errors import Busy, NotFound, TooMany
from memoryhub.mcp.caller import Admitted
from memoryhub.mcp.turns import IDLE_SECONDS

MOST_SESSIONS = 1_000
# Of all tokens of a person, or of an agent's token
MOST_SESSIONS_OF_A_PERSON = 200


@dataclass(slots=True)
class _Session:
    owner: str
    # Whose limit it counts for
    holder: str
    project: str
    # Requests that are being answered, and streams
    open: int = 0
    used_at: float = field(default_factory=time.monotonic)

    def is_idle(self) -> bool:
        return not self.open and time.monotonic() - self.used_at > IDLE_SECONDS


# A person with all their tokens (the actor is ``ann/laptop``), or another token
def _holder(caller: Admitted) -> str:
    person, client, _ = caller.actor.partition("/")
    return f"person:{person}" if client else caller.owner


class Sessions:
    def __init__(self) -> None:
        self._sessions: dict[str, _Session] = {}

    def begin(self, session_id: str, caller: Admitted) -> None:
        self._sessions[session_id] = _Session(caller.owner, _holder(caller), caller.project)

    def end(self, session_id: str) -> None:
        self._sessions.pop(session_id, None)

    def idle(self) -> list[tuple[str, str]]:
        """Return the ids and projects of the sessions that no request has used for long."""
        return [(name, session.project) for name, session in self._sessions.items() if session.is_idle()]

    def make_room(self, caller: Admitted) -> list[tuple[str, str]]:
        """Return the id and project of a session that was ended to make room for one more, or nothing.

        Where the hub is full, it is the longest idle session of the caller with most sessions.

        Raises:
            TooMany: the caller has as many sessions as one person may have.
            Busy: the hub is full, and the caller with most sessions uses all of them.
        """
        held = Counter(session.holder for session in self._sessions.values())
        if held[_holder(caller)] >= MOST_SESSIONS_OF_A_PERSON:
            raise TooMany(f"you have {MOST_SESSIONS_OF_A_PERSON} sessions; end some of them")
        if len(self._sessions) < MOST_SESSIONS:
            return []
        most = max(held.values())
        idle = {
            name: session
            for name, session in self._sessions.items()
            if not session.open and held[session.holder] == most
        }
        if not idle:
            raise Busy(f"{MOST_SESSIONS} sessions are open; try again later")
        name = min(idle, key=lambda name: idle[name].used_at)
        self.end(name)
        return [(name, idle[name].project)]

    @contextmanager
    def using(self, session_id: str, caller: Admitted) -> Iterator[None]:
        """Keep the session from being idle inside the block.

        Raises:
            NotFound: there is none, or it belongs to another token or project.
        """
        session = self._sessions.get(session_id)
        if session is None or (session.owner, session.project) != (caller.owner, caller.project):
            raise NotFound("there is no such session; start one with initialize")
        session.open += 1
        try:
            yield
        finally:
            session.open -= 1
            session.used_at = time.monotonic()
