"""Run the WSGI application under an ASGI server, in threads that live as long as the server."""

from __future__ import annotations

import asyncio
import io
import sys
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import unquote_to_bytes

from memoryhub.ops.serving.live import Source, Streams

THREADS = 8
# Key of the scope: the person whom a named proxy has signed in, or ""
REMOTE_USER = "memoryhub.remote_user"

Scope = dict[str, Any]
Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


# Not Django's ASGI handler, which starts a thread per request, which opens its databases again (decision 12). A body
# is read whole before a thread is taken, so slow clients occupy none; of one longer than ``max_body``, one more byte
# is kept, so that the application can refuse it.
class WsgiBridge:
    def __init__(
        self,
        application: Application,
        *,
        max_body: int,
        threads: int = THREADS,
        on_request: Callable[[], None] = lambda: None,
    ) -> None:
        self._application = application
        self._on_request = on_request
        self._max_body = max_body
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
        exchange = _Exchange(asyncio.get_running_loop(), send)
        await exchange.loop.run_in_executor(
            self._threads, exchange.run, self._application, environ_of(scope, body, self._max_body)
        )
        if exchange.source:
            await self._stream(exchange.source, exchange, receive, send)

    async def _stream(self, source: Source, exchange: _Exchange, receive: Receive, send: Send) -> None:
        if self.streams.is_full:
            await send({"type": "http.response.start", "status": 503, "headers": []})
        else:
            await send(exchange.start)
            await self.streams.run(source, receive, send)
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
    def __init__(self, loop: asyncio.AbstractEventLoop, send: Send) -> None:
        self.loop = loop
        self._send = send
        self.start: Message = {}
        # What the client follows, if the response is a stream of messages
        self.source: Source | None = None

    def run(self, application: Application, environ: dict[str, Any]) -> None:
        chunks = application(environ, self._start_response)
        try:
            self.source = getattr(chunks, "source", None)
            if self.source:
                return
            if isinstance(chunks, list | tuple) or getattr(chunks, "streaming", True) is False:
                self._emit(self.start, _body(b"".join(chunks), more=False))
                return
            self._emit(self.start)
            for chunk in chunks:
                self._emit(_body(chunk, more=True))
            self._emit(_body(b"", more=False))
        finally:
            close = getattr(chunks, "close", None)
            if close:
                close()

    def _start_response(self, status: str, headers: list[tuple[str, str]], _exc_info: object = None) -> None:
        # Django writes cookies with a space before them.
        encoded = [(name.lower().encode("latin-1"), value.strip().encode("latin-1")) for name, value in headers]
        self.start = {"type": "http.response.start", "status": int(status.split(" ", 1)[0]), "headers": encoded}

    def _emit(self, *messages: Message) -> None:
        asyncio.run_coroutine_threadsafe(self._send_all(messages), self.loop).result()

    async def _send_all(self, messages: tuple[Message, ...]) -> None:
        for message in messages:
            await self._send(message)


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
