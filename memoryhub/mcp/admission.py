"""Admission of HTTP clients: by the hub's token or an agent's token, and to the sessions that they began."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from starlette.requests import Request

from memoryhub.core.errors import Busy, NotFound, TooMany, Unauthorized
from memoryhub.core.permissions import use_grant
from memoryhub.core.secret_files import TOKEN, read_or_create_secret, secret_matches
from memoryhub.mcp.binding import IDLE_SECONDS, Admitted
from memoryhub.ops.serving.bridge import ACCEPTED, VERDICT
from memoryhub.registry import tokens

_HOW = (
    "send 'Authorization: Bearer …' with a token from the Tokens page, or with the content of the file 'token' in the "
    "hub's home folder"
)
# Owner of the sessions begun with the hub's token; other tokens are named by their prefix.
_HUB_OWNER = "hub"
MOST_SESSIONS = 1_000
# With all tokens of a person, or with an agent's token
MOST_SESSIONS_OF_A_PERSON = 200

Note = Callable[[], None]


class Admission:
    """Recognises callers by their token; ``require`` raises HubError if their rights don't reach a project."""

    def __init__(self, *, needs_token: bool, require: Callable[[str], None]) -> None:
        self._needs_token = needs_token
        self._require = require
        # One thread for one connection to hub.db: a query takes less time than starting a thread.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="memory-hub-admission")

    async def admit(self, request: Request, project: str) -> tuple[Admitted, Note | None]:
        """Return the caller, and a callback that records the token's use, if that is due.

        Raises:
            Unauthorized: the token is missing or not valid.
            Forbidden: the token doesn't reach the project, in a server of one project.
            NotFound: the token doesn't reach the project, or there is none.
            Unavailable: the hub's own token or hub.db cannot be read.
        """
        if not self._needs_token:
            return Admitted(project), None
        scheme, _, text = request.headers.get("authorization", "").partition(" ")
        text = text.strip()
        if scheme.lower() != "bearer":
            text = ""
        verdict = request.scope.get(VERDICT, {})
        if not tokens.FORMAT.fullmatch(text):
            verdict[ACCEPTED] = secret_matches(text, read_or_create_secret(TOKEN))
            if not verdict[ACCEPTED]:
                raise Unauthorized(f"the token is missing or wrong; {_HOW}")
            self._require(project)
            return Admitted(project, owner=_HUB_OWNER), None
        address = request.client.host if request.client else ""
        with_token = partial(self._with_token, text, project, address, verdict)
        return await asyncio.get_running_loop().run_in_executor(self._thread, with_token)

    def submit(self, note: Note) -> None:
        self._thread.submit(note)

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _with_token(
        self, text: str, project: str, address: str, verdict: dict[str, bool]
    ) -> tuple[Admitted, Note | None]:
        verdict[ACCEPTED] = False
        token = tokens.recognise(text)
        verdict[ACCEPTED] = token is not None
        if token is None:
            raise Unauthorized(f"the token is missing or wrong; {_HOW}")
        caller = Admitted(project, tokens.actor_of(token), tokens.grant_of(token), token.prefix)
        with use_grant(caller.grant):
            self._require(project)
        return caller, tokens.due_note(token, address)


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


# Sessions are counted by person, with all their tokens (the actor is ``ann/laptop``), or by token.
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
        unused = [item for item in self._sessions.items() if not item[1].open and held[item[1].holder] == most]
        if not unused:
            raise Busy(f"{MOST_SESSIONS} sessions are open; try again later")
        name, session = min(unused, key=lambda item: item[1].used_at)
        self.end(name)
        return [(name, session.project)]

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
