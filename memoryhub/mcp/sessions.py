"""The sessions that HTTP clients begin with a handshake: each belongs to a token and a project."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from memoryhub.core.errors import Busy, NotFound, TooMany
from memoryhub.mcp.caller import Admitted
from memoryhub.mcp.turns import IDLE_SECONDS

MOST_SESSIONS = 1_000
MOST_SESSIONS_OF_A_TOKEN = 200


@dataclass(slots=True)
class _Session:
    owner: str
    project: str
    # Requests that are being answered, and streams
    open: int = 0
    used_at: float = field(default_factory=time.monotonic)

    def is_idle(self) -> bool:
        return not self.open and time.monotonic() - self.used_at > IDLE_SECONDS


class Sessions:
    def __init__(self) -> None:
        self._sessions: dict[str, _Session] = {}

    def begin(self, session_id: str, caller: Admitted) -> None:
        self._sessions[session_id] = _Session(caller.owner, caller.project)

    def end(self, session_id: str) -> None:
        self._sessions.pop(session_id, None)

    def idle(self) -> list[tuple[str, str]]:
        """Return the ids and projects of the sessions that no request has used for long."""
        return [(name, session.project) for name, session in self._sessions.items() if session.is_idle()]

    def require_room(self, caller: Admitted) -> None:
        """Raise TooMany or Busy if one more session would exceed a limit."""
        if sum(session.owner == caller.owner for session in self._sessions.values()) >= MOST_SESSIONS_OF_A_TOKEN:
            raise TooMany(f"this token has {MOST_SESSIONS_OF_A_TOKEN} sessions; end some of them")
        if len(self._sessions) >= MOST_SESSIONS:
            raise Busy(f"{MOST_SESSIONS} sessions are open; try again later")

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
