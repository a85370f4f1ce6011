"""Authentication of HTTP clients by the hub's token or an agent's token."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from starlette.requests import Request

from memoryhub.core.errors import Unauthorized
from memoryhub.core.permissions import use_grant
from memoryhub.core.secret_files import TOKEN, read_or_create_secret, secret_matches
from memoryhub.mcp.caller import Admitted
from memoryhub.ops.serving.bridge import ACCEPTED, VERDICT
from memoryhub.registry import tokens

_HOW = (
    "send 'Authorization: Bearer …' with a token from the Tokens page, or with the content of the file 'token' in the "
    "hub's home folder"
)
# Of the hub's own token; others are named by their prefix.
_OWN = "hub"

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
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        text = given.strip() if kind.lower() == "bearer" else ""
        verdict = request.scope.get(VERDICT, {})
        if not tokens.FORMAT.fullmatch(text):
            return self._with_own_token(text, project, verdict), None
        address = request.client.host if request.client else ""
        with_token = partial(self._with_token, text, project, address, verdict)
        return await asyncio.get_running_loop().run_in_executor(self._thread, with_token)

    def submit(self, note: Note) -> None:
        self._thread.submit(note)

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _with_own_token(self, text: str, project: str, verdict: dict[str, bool]) -> Admitted:
        verdict[ACCEPTED] = secret_matches(text, read_or_create_secret(TOKEN))
        if not verdict[ACCEPTED]:
            raise Unauthorized(f"the token is missing or wrong; {_HOW}")
        self._require(project)
        return Admitted(project, owner=_OWN)

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
