"""Who may come in over HTTP, and with which rights: the bearer of the hub's token, or of an agent's."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from starlette.requests import Request
from starlette.types import Message, Send

from memoryhub.core.errors import Forbidden, NotFound, Unauthorized
from memoryhub.core.permissions import EVERYTHING
from memoryhub.core.secret_files import TOKEN, read_or_create_secret, secret_matches
from memoryhub.mcp.server import ACTOR, GRANT, SESSION_HEADER
from memoryhub.models import AgentToken
from memoryhub.registry import tokens

_HOW = (
    "send 'Authorization: Bearer …' with a token of the page Tokens, or with the text of the file 'token' in the hub's "
    "home folder"
)
_SESSIONS_KNOWN = 10_000


class Admission:
    """Lets callers in, and keeps each one to the sessions that it began itself."""

    def __init__(self, project: str, *, token_wanted: bool) -> None:
        self._project = project
        self._token_wanted = token_wanted
        self._owners: OrderedDict[str, str] = OrderedDict()
        # One thread, so one connection to hub.db: asking it takes less time than a thread does to start.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="memory-hub-admission")

    async def admit(self, request: Request) -> Callable[[], None] | None:
        """Write into the request's scope who calls; return what notes the token's use once the answer is sent.

        Raises:
            Unauthorized: there is no token, or none that counts.
            Forbidden: the token is not for the project that is served here.
            NotFound: the session was begun by another.
            Unavailable: the hub's own token cannot be read.
        """
        actor, grant, note = "", EVERYTHING, None
        if self._token_wanted:
            token = await self._token_of(request)
            if token is not None:
                actor, grant = tokens.actor_of(token), tokens.grant_of(token)
                note = tokens.due_note(token, request.client.host if request.client else "")
        if grant.projects is not None and self._project not in grant.projects:
            raise Forbidden("this token has no right to the project that is served here; an owner makes one that has")
        session = request.headers.get(SESSION_HEADER, "")
        if session and self._owners.get(session) != actor:
            raise NotFound("there is no such session; begin one with initialize")
        request.scope[ACTOR], request.scope[GRANT] = actor, grant
        return note

    def watch(self, send: Send, actor: str) -> Send:
        """Return a ``send`` that keeps whose the session is that the answer begins."""

        async def watched(message: Message) -> None:
            if message["type"] == "http.response.start":
                for name, value in message["headers"]:
                    if name.lower() == SESSION_HEADER.encode():
                        self._keep(value.decode("latin-1"), actor)
            await send(message)

        return watched

    def forget(self, session: str) -> None:
        self._owners.pop(session, None)

    def do_later(self, note: Callable[[], None]) -> None:
        self._thread.submit(note)

    def _keep(self, session: str, actor: str) -> None:
        self._owners[session] = actor
        while len(self._owners) > _SESSIONS_KNOWN:
            self._owners.popitem(last=False)

    async def _token_of(self, request: Request) -> AgentToken | None:
        """Return the agent's token; None where it is the hub's own."""
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        text = given.strip() if kind.lower() == "bearer" else ""
        if tokens.FORMAT.fullmatch(text):
            return await asyncio.get_running_loop().run_in_executor(self._thread, tokens.recognise, text)
        if not secret_matches(text, read_or_create_secret(TOKEN)):
            raise Unauthorized(f"this address wants a token of the hub; {_HOW}")
        return None
