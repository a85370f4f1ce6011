"""Run the WSGI application under an ASGI server, in threads that live as long as the server."""

from __future__ import annotations

import asyncio
import io
import logging
import sys
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import unquote_to_bytes

from memoryhub.ops.serving.live import Source, Streams
from memoryhub.ops.serving.outbox import Closed, Outbox, Spool, SpoolFull

logger = logging.getLogger(__name__)

THREADS = 8
# Key of the scope: the person whom a named proxy has signed in, or ""
REMOTE_USER = "memoryhub.remote_user"
# Key of the scope and of the WSGI environment: a dict in which the check of a token notes under ``ACCEPTED`` whether
# it was right. A status tells less: some addresses answer whatever token is sent.
VERDICT = "memoryhub.verdict"
ACCEPTED = "accepted"

Scope = dict[str, Any]
Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


# Not Django's ASGI handler, which starts a thread per request, which opens its databases again (decision 12). A body
# is read whole before a thread is taken, so slow clients occupy none; of one longer than ``max_body``, one more byte
# is kept, so that the application can refuse it. An answer is handed over to the event loop, so slow readers occupy no
# thread either.
class WsgiBridge:
    def __init__(
        self,
        application: Application,
        *,
        max_body: int,
        threads: int = THREADS,
        spool: Spool | None = None,
        on_request: Callable[[], None] = lambda: None,
    ) -> None:
        self._application = application
        self._on_request = on_request
        self._max_body = max_body
        self._spool = spool or Spool()
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="web")
        # One thread, with one connection to each store that is followed
        self._live = ThreadPoolExecutor(1, thread_name_prefix="live")
        self.streams = Streams(self._live)

    def close(self) -> None:
        for threads in (self._threads, self._live):
            threads.shutdown(wait=False, cancel_futures=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        if not _is_automatic(scope):
            self._on_request()
        body = await self._read(receive)
        if body is None:
            return
        loop = asyncio.get_running_loop()
        exchange = _Exchange(Outbox(loop, self._spool))
        environ = environ_of(scope, body, self._max_body)
        running = loop.run_in_executor(self._threads, exchange.run, self._application, environ)
        running.add_done_callback(lambda _: exchange.outbox.end())
        try:
            await exchange.pass_on(running, send)
        finally:
            exchange.outbox.close()
        if exchange.source:
            await self._stream(exchange.source, exchange, receive, send)

    async def _stream(self, source: Source, exchange: _Exchange, receive: Receive, send: Send) -> None:
        if self.streams.is_full_for(exchange.person):
            await _send_unavailable(send)
            return
        await send(exchange.start)
        await self.streams.run(source, exchange.person, receive, send, may_follow=exchange.may_follow)
        await send(_body(b"", more=False))

    # None if the client has disconnected
    async def _read(self, receive: Receive) -> bytes | None:
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            body += message.get("body", b"")
            if not message.get("more_body") or len(body) > self._max_body:
                return bytes(body[: self._max_body + 1])


class _Exchange:
    def __init__(self, outbox: Outbox) -> None:
        self.outbox = outbox
        self.start: Message = {}
        # What the client follows, if the response is a stream of messages
        self.source: Source | None = None
        self.person = ""
        self.may_follow: Callable[[], bool] = bool

    # In a thread
    def run(self, application: Application, environ: dict[str, Any]) -> None:
        chunks = application(environ, self._start_response)
        try:
            self.source = getattr(chunks, "source", None)
            if self.source:
                self.person = chunks.person  # type: ignore[attr-defined]
                self.may_follow = chunks.may_follow  # type: ignore[attr-defined]
                return
            is_whole = isinstance(chunks, list | tuple) or getattr(chunks, "streaming", True) is False
            for chunk in [b"".join(chunks)] if is_whole else chunks:
                self.outbox.put(chunk)
        except Closed:
            pass  # the client is gone
        finally:
            close = getattr(chunks, "close", None)
            if close:
                close()

    # In the event loop
    async def pass_on(self, running: asyncio.Future[None], send: Send) -> None:
        sent = b""
        async for chunk in self.outbox.chunks():
            if not sent:
                await send(self.start)
            else:
                await send(_body(sent, more=True))
            sent = chunk
        try:
            await running
        except SpoolFull:
            logger.warning("too many clients don't read their answers; one was cut short")
            if sent:
                raise
            await _send_unavailable(send)
            return
        if self.source:
            return
        if not sent:
            await send(self.start)
        await send(_body(sent, more=False))

    def _start_response(self, status: str, headers: list[tuple[str, str]], _exc_info: object = None) -> None:
        # Django writes cookies with a space before them.
        encoded = [(name.lower().encode("latin-1"), value.strip().encode("latin-1")) for name, value in headers]
        self.start = {"type": "http.response.start", "status": int(status.split(" ", 1)[0]), "headers": encoded}


async def _send_unavailable(send: Send) -> None:
    await send({"type": "http.response.start", "status": 503, "headers": [(b"retry-after", b"1")]})
    await send(_body(b"", more=False))


# Of a page that follows changes: it does not keep an idle hub running
def _is_automatic(scope: Scope) -> bool:
    headers = dict(scope["headers"])
    return b"hub-live" in headers or headers.get(b"accept") == b"text/event-stream"


def _body(content: bytes, *, more: bool) -> Message:
    return {"type": "http.response.body", "body": content, "more_body": more}


def environ_of(scope: Scope, body: bytes, max_body: int) -> dict[str, Any]:
    """Return the WSGI environment of an ASGI request (PEP 3333)."""
    server, client = scope.get("server") or ("127.0.0.1", 80), scope.get("client") or ("", 0)
    path = unquote_to_bytes(scope["raw_path"]) if scope.get("raw_path") else scope["path"].encode()
    environ: dict[str, Any] = {
        "REQUEST_METHOD": scope["method"],
        "SCRIPT_NAME": "",
        "PATH_INFO": path.decode("latin-1"),
        "QUERY_STRING": scope["query_string"].decode("latin-1"),
        "SERVER_NAME": server[0],
        "SERVER_PORT": str(server[1]),
        "REMOTE_ADDR": client[0],
        "REMOTE_USER": scope.get(REMOTE_USER, ""),
        VERDICT: scope.get(VERDICT, {}),
        "SERVER_PROTOCOL": f"HTTP/{scope['http_version']}",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": scope.get("scheme", "http"),
        "wsgi.input": io.BytesIO(body),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }
    environ.update(_headers(scope["headers"]))
    declared = environ.get("CONTENT_LENGTH", "")
    if len(body) <= max_body or not declared.isdigit():
        environ["CONTENT_LENGTH"] = str(len(body))
    return environ


def _headers(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for raw_name, raw_value in headers:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        if "_" in name:
            continue  # X_Session_Id would pass for X-Session-Id
        key = name.upper().replace("-", "_")
        key = key if key in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{key}"
        separator = "; " if key == "HTTP_COOKIE" else ","
        found[key] = f"{found[key]}{separator}{value}" if key in found else value
    return found
