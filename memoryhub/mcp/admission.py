"""Authentication of HTTP clients by the hub's token or an agent's token."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from starlette.requests import Request
from starlette.types import Message, Send

from memoryhub.core.errors import Forbidden, NotFound, Unauthorized
from memoryhub.core.permissions import EVERYTHING, Grant
from memoryhub.core.secret_files import TOKEN, read_or_create_secret, secret_matches
from memoryhub.mcp.server import ACTOR, GRANT, SESSION_HEADER
from memoryhub.models import AgentToken
from memoryhub.registry import tokens

_HOW = (
    "send 'Authorization: Bearer …' with a token from the Tokens page, or with the content of the file 'token' in the "
    "hub's home folder"
)
_MAX_OWNERS = 10_000


class Admission:
    """Authenticates callers; each one may use only the MCP sessions that it began itself."""

    def __init__(self, project: str, *, needs_token: bool) -> None:
        self._project = project
        self._needs_token = needs_token
        self._owners: OrderedDict[str, str] = OrderedDict()
        # One thread for one connection to hub.db: a query takes less time than starting a thread.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="memory-hub-admission")

    async def admit(self, request: Request) -> Callable[[], None] | None:
        """Store caller and rights in the request's scope; return a callback that records the token's use.

        Raises:
            Unauthorized: the token is missing or not valid.
            Forbidden: the token is not valid for this server's project.
            NotFound: the session was begun by another caller.
            Unavailable: the hub's own token cannot be read.
        """
        actor, grant, note = "", EVERYTHING, None
        if self._needs_token:
            found = await self._token_of(request)
            if found is not None:
                token, grant = found
                actor = tokens.actor_of(token)
                note = tokens.due_note(token, request.client.host if request.client else "")
        session = request.headers.get(SESSION_HEADER, "")
        if session and self._owners.get(session) != actor:
            raise NotFound("there is no such session; start one with initialize")
        request.scope[ACTOR], request.scope[GRANT] = actor, grant
        return note

    def watch(self, send: Send, actor: str) -> Send:
        # Remembers who owns the session that this response begins.

        async def watched(message: Message) -> None:
            if message["type"] == "http.response.start":
                for name, value in message["headers"]:
                    if name.lower() == SESSION_HEADER.encode():
                        self._keep(value.decode("latin-1"), actor)
            await send(message)

        return watched

    def forget(self, session: str) -> None:
        self._owners.pop(session, None)

    def submit(self, note: Callable[[], None]) -> None:
        self._thread.submit(note)

    def _keep(self, session: str, actor: str) -> None:
        self._owners[session] = actor
        while len(self._owners) > _MAX_OWNERS:
            self._owners.popitem(last=False)

    async def _token_of(self, request: Request) -> tuple[AgentToken, Grant] | None:
        # None is the hub's own token.
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        text = given.strip() if kind.lower() == "bearer" else ""
        if tokens.FORMAT.fullmatch(text):
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._rights_of, text)
        if not secret_matches(text, read_or_create_secret(TOKEN)):
            raise Unauthorized(f"the token is missing or wrong; {_HOW}")
        return None

    # In the thread, because the rights of a person and of an organisation are read from hub.db and from stores.
    def _rights_of(self, text: str) -> tuple[AgentToken, Grant] | None:
        token = tokens.recognise(text)
        if token is None:
            return None
        grant = tokens.grant_of(token)
        if not grant.at(f"project:{self._project}"):
            raise Forbidden("this token doesn't allow access to this server's project; ask an owner for one that does")
        return token, grant
