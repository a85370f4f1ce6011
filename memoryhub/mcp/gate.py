"""ASGI application in front of the server: checks callers, counts calls and streams, and ends them on shutdown."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import Message, Receive, Scope, Send

from memoryhub.core.errors import PROBLEMS_PATH, Busy, HubError, TooMany, Unauthorized, describe_problem
from memoryhub.mcp.admission import Admission, Sessions
from memoryhub.mcp.binding import ADMITTED, SESSION_HEADER, Admitted
from memoryhub.mcp.jsonrpc import HANDSHAKE_VERSIONS
from memoryhub.mcp.threads import stopping_error

if TYPE_CHECKING:
    from memoryhub.mcp.host import Host

logger = logging.getLogger(__name__)

MOST_CALLS, MOST_CALLS_OF_A_TOKEN = 400, 100
MOST_STREAMS, MOST_STREAMS_OF_A_TOKEN = 500, 100
# In all requests that are read or answered at the moment
MOST_BYTES_OF_BODIES = 64 * 1024 * 1024
# How long one body may take to arrive
MOST_SECONDS_OF_A_BODY = 30.0
# How often open streams are checked for tokens that were revoked, and sessions for idle ones
PATROL_SECONDS = 5.0
# How long streams may take to send their last message
_STREAM_END_SECONDS = 1.0
_RETRY_SECONDS = "1"
_PROBLEM = "application/problem+json"

# Returns the response to a request from a foreign host or page.
Check = Callable[[Request], Awaitable[Response | None]]


class Gate:
    def __init__(
        self,
        *,
        check: Check,
        project_of: Callable[[str], str | None],
        admission: Admission,
        load: Callable[[], Awaitable[Host]],
        max_body: int,
        on_call: Callable[[], None] = lambda: None,
    ) -> None:
        self._check = check
        self._project_of = project_of
        self._admission = admission
        self._load = load
        self._max_body = max_body
        self._on_call = on_call
        self._loading = asyncio.Lock()
        self._host: Host | None = None
        self._sessions = Sessions()
        self._calls = _Count("calls", MOST_CALLS, MOST_CALLS_OF_A_TOKEN)
        self._streams = _Count("streams", MOST_STREAMS, MOST_STREAMS_OF_A_TOKEN)
        self._bodies = Bodies()
        self._open: dict[asyncio.Task[None], Request] = {}
        self._answering = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._closed = False
        self._patrol = asyncio.create_task(self._keep_watch())

    async def close(self, seconds: float) -> None:
        """Accept no more requests, wait at most ``seconds`` for the answers that are due, and end all streams."""
        self._closed = True
        self._patrol.cancel()
        host = self._host
        if host:
            host.stop_work()
        try:
            await asyncio.wait_for(self._idle.wait(), seconds)
        except TimeoutError:
            logger.warning("%d calls were not answered before the shutdown", self._answering)
        if host:
            await host.close()
        if self._open:
            await asyncio.wait(list(self._open), timeout=_STREAM_END_SECONDS)
        for stream in list(self._open):
            stream.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)
        self._admission.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope)
        project = self._project_of(request.url.path)
        response = await self._check(request)
        if response is None and project is None:
            response = _open_to_all(request.url.path)
        if response is not None or project is None:
            await (response or PlainTextResponse("Not found\n", 404))(scope, receive, send)
            return
        note = None
        sent = _Sent(send)
        try:
            caller, note = await self._admission.admit(request, project)
            if self._closed:
                raise stopping_error()
            scope[ADMITTED] = caller
            await self._pass_on(request, caller, receive, sent)
        except HubError as error:
            if not sent.started:
                await _problem(error)(scope, receive, send)
        finally:
            if note is not None and not self._closed:
                self._admission.submit(note)

    async def _pass_on(self, request: Request, caller: Admitted, receive: Receive, send: _Sent) -> None:
        session = request.headers.get(SESSION_HEADER, "")
        version = request.headers.get("mcp-protocol-version")
        if not session and request.method == "POST" and (version is None or version in HANDSHAKE_VERSIONS):
            for ended, project in self._sessions.make_room(caller):
                await (await self._ready()).end_session(ended, project)
            send.on_session = lambda begun: self._sessions.begin(begun, caller)
        with self._sessions.using(session, caller) if session else nullcontext():
            host = await self._ready()
            # The newest revision repeats the method in a header, and the SDK refuses another one than the body's.
            if request.method == "GET" or request.headers.get("mcp-method") == "subscriptions/listen":
                with self._streams.one_of(caller.owner):
                    await self._run_stream(host, request, receive, send)
            else:
                self._on_call()
                with self._calls.one_of(caller.owner):
                    await self._answer(host, request, caller.project, receive, send)
        if session and request.method == "DELETE":
            self._sessions.end(session)
            await host.end_session(session, caller.project)

    async def _ready(self) -> Host:
        async with self._loading:
            if self._closed:
                raise stopping_error()
            if self._host is None:
                self._host = await self._load()
            return self._host

    # The body is read before, so that a slow client doesn't delay a shutdown.
    async def _answer(self, host: Host, request: Request, project: str, receive: Receive, send: _Sent) -> None:
        async with self._bodies.read(receive, self._max_body) as (body, problem):
            if problem is not None:
                await problem(request.scope, receive, send)
                return
            # Again, because the token may have been revoked, or its rights changed, while the body arrived.
            request.scope[ADMITTED], _ = await self._admission.admit(request, project)
            if self._closed:
                raise stopping_error()
            self._answering += 1
            self._idle.clear()
            try:
                await host.handle(request.scope, _replayed(bytes(body), receive), send)
            finally:
                self._answering -= 1
                if not self._answering:
                    self._idle.set()

    async def _run_stream(self, host: Host, request: Request, receive: Receive, send: _Sent) -> None:
        """Run a response that has no end; it is ended on shutdown, and when its token is no longer valid."""
        stream = asyncio.ensure_future(host.handle(request.scope, receive, send))
        self._open[stream] = request
        try:
            await asyncio.wait({stream})
            if not stream.cancelled():
                stream.result()
        finally:
            stream.cancel()
            del self._open[stream]
            await send.finish()

    async def _keep_watch(self) -> None:
        while True:
            await asyncio.sleep(PATROL_SECONDS)
            try:
                for stream, request in list(self._open.items()):
                    try:  # again, because a token may have been revoked
                        await self._admission.admit(request, request.scope[ADMITTED].project)
                    except HubError as error:
                        logger.info("a stream was ended: %s", error.message)
                        stream.cancel()
                for session, project in self._sessions.idle():
                    self._sessions.end(session)
                    if self._host:
                        await self._host.end_session(session, project)
                if self._host:
                    await self._host.end_idle()
            except Exception:
                logger.exception("idle sessions could not be ended; retrying")


class _Count:
    def __init__(self, what: str, most: int, most_of_a_token: int) -> None:
        self._what = what
        self._most = most
        self._most_of_a_token = most_of_a_token
        self._of: Counter[str] = Counter()
        self._total = 0

    @contextmanager
    def one_of(self, owner: str) -> Iterator[None]:
        if self._of[owner] >= self._most_of_a_token:
            raise TooMany(f"this token has {self._most_of_a_token} {self._what} open at once; wait for some to end")
        if self._total >= self._most:
            raise Busy(f"{self._most} {self._what} are open; try again later")
        self._change(owner, 1)
        try:
            yield
        finally:
            self._change(owner, -1)

    def _change(self, owner: str, step: int) -> None:
        self._of[owner] += step
        if not self._of[owner]:
            del self._of[owner]
        self._total += step


class _Sent:
    def __init__(self, send: Send) -> None:
        self._send = send
        self.on_session: Callable[[str], None] | None = None
        self.started = False
        self._ended = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            if self.on_session and message["status"] < 400:
                for name, value in message["headers"]:
                    if name.lower() == SESSION_HEADER.encode():
                        self.on_session(value.decode("latin-1"))
        elif message["type"] == "http.response.body" and not message.get("more_body", False):
            self._ended = True
        await self._send(message)

    async def finish(self) -> None:
        """End a response that was cut short, as its client expects it."""
        if self.started and not self._ended:
            self._ended = True
            with suppress(Exception):  # the client is gone
                await self._send({"type": "http.response.body", "body": b"", "more_body": False})


def _open_to_all(path: str) -> Response | None:
    # Nothing at /.well-known/: after a 401 clients would look for an OAuth server.
    if path.startswith(PROBLEMS_PATH) and (description := describe_problem(path.removeprefix(PROBLEMS_PATH))):
        return JSONResponse(description)
    return None


def _problem(error: HubError) -> Response:
    headers: dict[str, str] = {}
    if isinstance(error, Unauthorized):
        headers["WWW-Authenticate"] = "Bearer"
    if error.http_status in (429, 503):
        headers["Retry-After"] = _RETRY_SECONDS
    return JSONResponse(error.as_problem(), status_code=error.http_status, headers=headers, media_type=_PROBLEM)


class Bodies:
    def __init__(self) -> None:
        self._held = 0

    @asynccontextmanager
    async def read(self, receive: Receive, most: int) -> AsyncIterator[tuple[bytearray, Response | None]]:
        """Yield a request's body, and the response to one that is too long or too slow.

        Raises:
            Busy: all bodies together are too large.
        """
        body = bytearray()
        problem = None
        has_more = True
        try:
            try:
                async with asyncio.timeout(MOST_SECONDS_OF_A_BODY):
                    while has_more and len(body) <= most:
                        message = await receive()
                        part = message.get("body", b"")
                        if self._held + len(part) > MOST_BYTES_OF_BODIES:
                            raise Busy("the bodies of all requests together are too large; try again in a moment")
                        self._held += len(part)
                        body += part
                        has_more = bool(message.get("more_body", False))
                if len(body) > most:
                    problem = PlainTextResponse("The body is too large\n", 413)
            except TimeoutError:
                problem = PlainTextResponse("The body took too long\n", 408)
            yield body, problem
        finally:
            self._held -= len(body)


def _replayed(body: bytes, receive: Receive) -> Receive:
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replayed() -> Message:
        if messages:
            return messages.pop()
        return await receive()

    return replayed
