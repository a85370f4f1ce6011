"""Bridge from ASGI to WSGI: requests run in threads, answers are spooled while clients read."""

from __future__ import annotations

import asyncio
import io
import logging
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

from memoryhub.ops.serving.live import LiveSource, Streams

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
        headers = dict(scope["headers"])
        # A page that follows changes does not keep an idle hub running
        if b"hub-live" not in headers and headers.get(b"accept") != b"text/event-stream":
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

    async def _stream(self, source: LiveSource, exchange: _Exchange, receive: Receive, send: Send) -> None:
        if self.streams.is_full_for(exchange.person):
            await _send_unavailable(send)
            return
        await send(exchange.start)
        await self.streams.run(source, exchange.person, receive, send, may_follow=exchange.may_follow)
        await send(_receive_body(b"", more=False))

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
        self.source: LiveSource | None = None
        self.person = ""
        self.may_follow: Callable[[], bool] = bool

    # In a thread
    def run(self, application: Application, environ: dict[str, Any]) -> None:
        response = application(environ, self._start_response)
        try:
            self.source = getattr(response, "source", None)
            if self.source:
                self.person = response.person  # type: ignore[attr-defined]
                self.may_follow = response.may_follow  # type: ignore[attr-defined]
                return
            chunks = response
            if isinstance(response, list | tuple) or getattr(response, "streaming", True) is False:
                chunks = [b"".join(response)]
            for chunk in chunks:
                self.outbox.put(chunk)
        except Closed:
            pass  # the client is gone
        finally:
            close = getattr(response, "close", None)
            if close:
                close()

    # In the event loop
    async def pass_on(self, running: asyncio.Future[None], send: Send) -> None:
        sent = b""
        async for chunk in self.outbox.chunks():
            if not sent:
                await send(self.start)
            else:
                await send(_receive_body(sent, more=True))
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
        await send(_receive_body(sent, more=False))

    def _start_response(self, status: str, headers: list[tuple[str, str]], _exc_info: object = None) -> None:
        # Django writes cookies with a space before them.
        encoded = [(name.lower().encode("latin-1"), value.strip().encode("latin-1")) for name, value in headers]
        self.start = {"type": "http.response.start", "status": int(status.split(" ", 1)[0]), "headers": encoded}


async def _send_unavailable(send: Send) -> None:
    await send({"type": "http.response.start", "status": 503, "headers": [(b"retry-after", b"1")]})
    await send(_receive_body(b"", more=False))


def _receive_body(content: bytes, *, more: bool) -> Message:
    return {"type": "http.response.body", "body": content, "more_body": more}


def environ_of(scope: Scope, body: bytes, max_body: int) -> dict[str, Any]:
    """Return the WSGI environment of an ASGI request (PEP 3333)."""
    server = scope.get("server") or ("127.0.0.1", 80)
    client = scope.get("client") or ("", 0)
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
    variables: dict[str, str] = {}
    for raw_name, raw_value in headers:
        name = raw_name.decode("latin-1")
        value = raw_value.decode("latin-1")
        if "_" in name:
            continue  # X_Session_Id would pass for X-Session-Id
        key = name.upper().replace("-", "_")
        if key not in ("CONTENT_TYPE", "CONTENT_LENGTH"):
            key = f"HTTP_{key}"
        if key in variables:
            separator = "; " if key == "HTTP_COOKIE" else ","
            value = f"{variables[key]}{separator}{value}"
        variables[key] = value
    return variables


_CHUNK_BYTES = 64 * 1024
# Bytes of one answer; with the limit of requests at once, this bounds the memory of all.
_MEMORY_BYTES = 2 * _CHUNK_BYTES
# Bytes of all answers, in memory and on the disk
_MOST_BYTES = 1024 * 1024 * 1024


class SpoolFull(Exception):
    """Too much waits for clients that do not read it."""


class Closed(Exception):
    """Nobody waits for the answer any more."""


class Spool:
    """The folder for answers that wait, and how many bytes all of them may have. ``None`` is the system's folder."""

    def __init__(self, folder: Path | None = None, *, most_bytes: int = _MOST_BYTES) -> None:
        self.folder = folder or Path(tempfile.gettempdir())
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self.bytes = 0

    def take(self, size: int) -> None:
        with self._lock:
            if self.bytes + size > self._most_bytes:
                raise SpoolFull
            self.bytes += size

    def give_back(self, size: int) -> None:
        with self._lock:
            self.bytes -= size


# A thread writes, and is never made to wait; the event loop reads as fast as the client does.
class Outbox:
    def __init__(self, loop: asyncio.AbstractEventLoop, spool: Spool) -> None:
        self._loop, self._spool = loop, spool
        self._lock = threading.Lock()
        self._news = asyncio.Event()
        # In memory until it is too long; on the disk it has no name, so nothing is left of it, whatever happens
        self._file = tempfile.SpooledTemporaryFile(_MEMORY_BYTES, mode="w+b", dir=str(spool.folder))  # noqa: SIM115
        self._written = self._read = 0
        self._ended = False

    def put(self, content: bytes) -> None:
        """Add a part of the answer, all or nothing of it. Raises SpoolFull or Closed."""
        self._spool.take(len(content))
        with self._lock:
            if self._file.closed:
                self._spool.give_back(len(content))
                raise Closed
            start = self._written
            self._written += len(content)  # given back at the end, even if the disk is full
            self._file.seek(start)
            self._file.write(content)
        self._notify()

    def end(self) -> None:
        with self._lock:
            self._ended = True
        self._notify()

    def _notify(self) -> None:
        self._loop.call_soon_threadsafe(self._news.set)

    async def chunks(self) -> AsyncIterator[bytes]:
        while True:
            self._news.clear()
            with self._lock:
                chunk, is_over = self._next(), self._ended
            if chunk:
                yield chunk
            elif is_over:
                return
            else:
                await self._news.wait()

    def _next(self) -> bytes:
        self._file.seek(self._read)
        chunk: bytes = self._file.read(_CHUNK_BYTES)
        self._read += len(chunk)
        if chunk and self._read == self._written:
            self._empty()
        return chunk

    # A client that keeps up needs no more of the disk, however long its answer is.
    def _empty(self) -> None:
        self._spool.give_back(self._written)
        self._written = self._read = 0
        self._file.seek(0)
        self._file.truncate()

    def close(self) -> None:
        with self._lock:
            self._empty()
            self._file.close()
