"""ASGI middleware: checks callers, and lets running calls finish on shutdown."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from mcp.server.transport_security import TransportSecurityMiddleware, TransportSecuritySettings
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from memoryhub.core.errors import PROBLEMS_PATH, HubError, Unauthorized, describe_problem
from memoryhub.mcp.admission import Admission
from memoryhub.mcp.options import LOOPBACK
from memoryhub.mcp.server import ACTOR, SESSION_HEADER
from memoryhub.mcp.threads import stopping_error

logger = logging.getLogger(__name__)

_PROBLEM = "application/problem+json"


def allowed_callers(host: str, port: int, names: list[str]) -> TransportSecuritySettings:
    own = LOOPBACK if host in LOOPBACK else (*LOOPBACK, host)
    bracketed = [f"[{name}]" if ":" in name else name for name in (*own, *names)]
    hosts = [f"{name}:{port}" for name in bracketed]
    return TransportSecuritySettings(
        allowed_hosts=[*hosts, *names], allowed_origins=[f"http://{name}" for name in hosts]
    )


class Gate:
    def __init__(
        self,
        application: ASGIApp,
        callers: TransportSecuritySettings,
        admission: Admission,
        *,
        on_session_end: Callable[[str], Awaitable[None]],
    ) -> None:
        self._application = application
        self._security = TransportSecurityMiddleware(callers)
        self._admission = admission
        self._on_session_end = on_session_end
        self._answering = 0
        self._closed = False
        self._idle = asyncio.Event()
        self._idle.set()

    async def close(self, seconds: float) -> None:
        """Let nobody in any more, and wait until those inside have their answers, for at most ``seconds``."""
        self._closed = True
        try:
            await asyncio.wait_for(self._idle.wait(), seconds)
        except TimeoutError:
            logger.warning("%d calls were not answered before the shutdown", self._answering)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        request = Request(scope)
        refusal = await self._security.validate_request(request) or _open_to_all(request.url.path)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        try:
            note = await self._admission.admit(request)
            if self._closed:
                raise stopping_error()
        except HubError as error:
            await _problem(error)(scope, receive, send)
            return
        try:
            await self._pass_on(request, receive, send)
        finally:
            if note is not None:
                self._admission.submit(note)

    async def _pass_on(self, request: Request, receive: Receive, send: Send) -> None:
        if request.method == "POST":
            await self._answer(request.scope, receive, self._admission.watch(send, request.scope[ACTOR]))
            return
        await self._application(request.scope, receive, send)
        if request.method == "DELETE":
            session = request.headers.get(SESSION_HEADER, "")
            self._admission.forget(session)
            await self._on_session_end(session)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._answering += 1
        self._idle.clear()
        try:
            await self._application(scope, receive, send)
        finally:
            self._answering -= 1
            if not self._answering:
                self._idle.set()


def _open_to_all(path: str) -> Response | None:
    if path.startswith("/.well-known/"):  # after a 401 clients would look for an OAuth server
        return PlainTextResponse("Not found\n", 404)
    if path.startswith(PROBLEMS_PATH):
        found = describe_problem(path.removeprefix(PROBLEMS_PATH))
        return JSONResponse(found) if found else PlainTextResponse("Not found\n", 404)
    return None


def _problem(error: HubError) -> Response:
    headers = {"WWW-Authenticate": "Bearer"} if isinstance(error, Unauthorized) else None
    return JSONResponse(error.as_problem(), status_code=error.http_status, headers=headers, media_type=_PROBLEM)
