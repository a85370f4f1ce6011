"""MCP of all projects in the hub, in the process of the test: the mount of the web server, without a socket."""

from __future__ import annotations

import json
import queue
import re
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import anyio.from_thread
from django.db import connections

from memoryhub.mcp.binding import SESSION_HEADER
from memoryhub.mcp.mount import McpMount
from memoryhub.ops.serving.live import Streams
from tests.mcp.client import CLIENT, ENVELOPE, HANDSHAKE, MODERN
from tests.permissions.matrix import Reply

_SECONDS = 60.0
_HELLO = {"protocolVersion": HANDSHAKE[-1], "capabilities": {}, "clientInfo": CLIENT}


class McpDoor:
    """The mount, and the test's connection to hub.db."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        connections["default"].inc_thread_sharing()
        self._stack.callback(connections["default"].dec_thread_sharing)
        threads = self._stack.enter_context(ThreadPoolExecutor(1))
        self._mount = McpMount(Streams(threads), on_call=lambda: None)
        self._stack.callback(self._mount.end)
        self._portal = self._stack.enter_context(
            anyio.from_thread.start_blocking_portal(backend_options={"debug": False})
        )
        self._stack.callback(self._portal.call, self._mount.close)
        self._portal.call(self._share, connections["default"])

    def close(self) -> None:
        self._stack.close()

    def ask(self, project: str, token: str, method: str, params: dict[str, Any]) -> Reply:
        """Send a request of the newest revision to the project's address, and return its answer."""
        exchange = self._exchange(project, *_modern(token, method, params))
        return self._answer(exchange)

    def _answer(self, exchange: _Exchange) -> Reply:
        reply = self._portal.call(exchange.answer)
        self.settle()
        return reply

    def settle(self) -> None:
        """Wait for the note of a token's use: it is written after the answer, with the test's own connection."""
        self._admission.submit(int).result(_SECONDS)

    def begin(self, project: str, token: str) -> tuple[Reply, str]:
        """Begin a session with a handshake; its id is empty if that was refused."""
        reply = self.ask_in("", project, token, "initialize", _HELLO)
        found = re.search(rf"'{SESSION_HEADER}', '([^']+)'", reply.head)
        session = found[1] if found else ""
        if session:
            self.ask_in(session, project, token, "notifications/initialized", None)
        return reply, session

    def ask_in(
        self, session: str, project: str, token: str, method: str, params: dict[str, Any] | None, verb: str = "POST"
    ) -> Reply:
        """Send a request of an older revision in a session; ``verb`` is that of HTTP."""
        exchange = self._exchange(project, *_in_session(session, token, method, params), verb=verb)
        return self._answer(exchange)

    def listen(self, project: str, token: str, params: dict[str, Any]) -> Stream:
        """Open a stream of the newest revision with ``subscriptions/listen``."""
        exchange = self._exchange(project, *_modern(token, "subscriptions/listen", params))
        return Stream(self, self._portal, exchange)

    def follow(self, session: str, project: str, token: str) -> Stream:
        """Open the stream of a session, with its notifications."""
        exchange = self._exchange(project, *_in_session(session, token, "", None), verb="GET")
        return Stream(self, self._portal, exchange)

    def _exchange(self, project: str, headers: dict[str, str], body: bytes, verb: str = "POST") -> _Exchange:
        return _Exchange(self._mount, f"/p/{project}/mcp", headers, body, verb)

    async def _share(self, connection: Any) -> None:
        # Rights are read in a thread of its own, whose connection would not see the test's transaction.
        gate = self._mount._gate = self._mount._make_gate()
        self._admission = gate._admission._thread
        self._admission.submit(connections.__setitem__, "default", connection)


class Stream:
    """A response without an end, as a client reads it: one message after another."""

    def __init__(self, door: McpDoor, portal: Any, exchange: _Exchange) -> None:
        self._door = door
        self._portal = portal
        self._exchange = exchange
        self._running: Future[None] = portal.start_task_soon(exchange.run)
        self._ready: list[Any] = []
        self._text = ""

    def next(self) -> Any:
        """Return the next message."""
        while not self._ready:
            piece = self._exchange.sent.get(timeout=_SECONDS)
            assert not self._running.done() or not self._running.exception(), self._running.exception()
            self._text += piece.get("body", b"").decode()
            *lines, self._text = self._text.split("\n")
            self._ready += [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
        self._door.settle()
        return self._ready.pop(0)

    def close(self) -> None:
        self._portal.call(self._exchange.leave)
        self._running.result(_SECONDS)
        self._door.settle()


class _Exchange:
    """One request to the application, and the messages of its response."""

    def __init__(self, application: Any, path: str, headers: dict[str, str], body: bytes, verb: str) -> None:
        self._application = application
        self._scope = _scope(path, headers, verb)
        self._pieces = [{"type": "http.request", "body": body, "more_body": False}]
        self._left: anyio.Event | None = None
        self.sent: queue.Queue[Any] = queue.Queue()

    async def answer(self) -> Reply:
        with anyio.fail_after(_SECONDS):
            await self.run()
        sent = [self.sent.get_nowait() for _ in range(self.sent.qsize())]
        start = next(message for message in sent if message["type"] == "http.response.start")
        text = b"".join(message.get("body", b"") for message in sent).decode()
        head = sorted((name.decode(), value.decode()) for name, value in start["headers"] if name != b"content-length")
        return Reply(start["status"], text, repr(head))

    async def run(self) -> None:
        self._left = anyio.Event()
        await self._application(self._scope, self._receive, self._send)

    async def leave(self) -> None:
        assert self._left
        self._left.set()

    async def _receive(self) -> Any:
        if self._pieces:
            return self._pieces.pop()
        assert self._left
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        self.sent.put(message)
        if message["type"] == "http.response.body" and not message.get("more_body"):
            await self.leave()


def _modern(token: str, method: str, params: dict[str, Any]) -> tuple[dict[str, str], bytes]:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": ENVELOPE}}
    named = {"mcp-name": str(params.get("name") or params.get("uri"))} if params.keys() & {"name", "uri"} else {}
    return {**_headers(token), "mcp-protocol-version": MODERN, "mcp-method": method, **named}, _json(body)


def _in_session(session: str, token: str, method: str, params: dict[str, Any] | None) -> tuple[dict[str, str], bytes]:
    is_request = not method.startswith("notifications/")
    body = {
        "jsonrpc": "2.0",
        "method": method,
        **({"id": 1} if is_request else {}),
        **({"params": params} if params else {}),
    }
    kept = {SESSION_HEADER: session} if session else {}
    return {**_headers(token), "mcp-protocol-version": HANDSHAKE[-1], **kept}, _json(body) if method else b""


def _headers(token: str) -> dict[str, str]:
    return {
        "host": "localhost",
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "authorization": f"Bearer {token}",
    }


def _json(body: dict[str, Any]) -> bytes:
    return json.dumps(body).encode()


def _scope(path: str, headers: dict[str, str], verb: str) -> dict[str, Any]:
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": verb,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": [(name.encode(), value.encode("utf-8")) for name, value in headers.items()],
        "client": ("127.0.0.1", 1),
        "server": ("localhost", 80),
    }
