"""MCP of all projects in the hub, in the process of the test: the mount of the web server, without a socket."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import anyio.from_thread
from django.db import connections

from memoryhub.mcp.mount import McpMount
from memoryhub.ops.serving.live import Streams
from tests.mcp.client import ENVELOPE, MODERN
from tests.permissions.matrix import Reply

_SECONDS = 60.0


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
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": ENVELOPE}}
        named = {"mcp-name": str(params.get("name") or params.get("uri"))} if params.keys() & {"name", "uri"} else {}
        headers = {
            "host": "localhost",
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            "authorization": f"Bearer {token}",
            "mcp-protocol-version": MODERN,
            "mcp-method": method,
            **named,
        }
        path = f"/p/{project}/mcp"
        reply: Reply = self._portal.call(_answer, self._mount, path, headers, json.dumps(body).encode())
        return reply

    async def _share(self, connection: Any) -> None:
        # Rights are read in a thread of its own, whose connection would not see the test's transaction.
        gate = self._mount._gate = self._mount._make_gate()
        gate._admission.submit(lambda: connections.__setitem__("default", connection))


async def _answer(application: Any, path: str, headers: dict[str, str], body: bytes) -> Reply:
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": [(name.encode(), value.encode("utf-8")) for name, value in headers.items()],
        "client": ("127.0.0.1", 1),
        "server": ("localhost", 80),
    }
    done = anyio.Event()
    pieces = [{"type": "http.request", "body": body, "more_body": False}]
    sent: list[Any] = []

    async def receive() -> Any:
        if pieces:
            return pieces.pop()
        await done.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)
        if message["type"] == "http.response.body" and not message.get("more_body"):
            done.set()

    with anyio.fail_after(_SECONDS):
        await application(scope, receive, send)
    start = next(message for message in sent if message["type"] == "http.response.start")
    text = b"".join(message.get("body", b"") for message in sent if message["type"] == "http.response.body").decode()
    head = sorted((name.decode(), value.decode()) for name, value in start["headers"] if name != b"content-length")
    return Reply(start["status"], text, repr(head))
