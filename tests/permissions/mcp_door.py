"""MCP over HTTP in the process of the test: the ASGI applications of some projects, without a socket."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import anyio.from_thread
from django.db import connections

from memoryhub.mcp.admission import Admission
from memoryhub.mcp.gate import Gate, allowed_callers
from memoryhub.mcp.http import PATH
from memoryhub.mcp.options import Options
from memoryhub.mcp.serve import Hub, build
from memoryhub.mcp.threads import READERS, Job
from tests.mcp.client import ENVELOPE, MODERN
from tests.permissions.matrix import Reply

_HOST, _PORT = "127.0.0.1", 8001
_SECONDS = 60.0


class McpDoor:
    """Servers of projects that share an event loop, and the test's connection to hub.db."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._portal = self._stack.enter_context(
            anyio.from_thread.start_blocking_portal(backend_options={"debug": False})
        )
        self._applications: dict[str, Any] = {}
        connections["default"].inc_thread_sharing()
        self._stack.callback(connections["default"].dec_thread_sharing)

    def close(self) -> None:
        self._stack.close()

    def ask(self, project: str, token: str, method: str, params: dict[str, Any]) -> Reply:
        """Send a request of the newest revision to the project's server, and return its answer."""
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": ENVELOPE}}
        headers = {
            "host": f"{_HOST}:{_PORT}",
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            "authorization": f"Bearer {token}",
            "mcp-protocol-version": MODERN,
            "mcp-method": method,
            **({"mcp-name": str(params.get("name") or params.get("uri"))} if params.keys() & {"name", "uri"} else {}),
        }
        reply: Reply = self._portal.call(_answer, self._application(project), headers, json.dumps(body).encode())
        return reply

    def _application(self, project: str) -> Any:
        if project not in self._applications:
            self._applications[project] = self._serve(project)
        return self._applications[project]

    def _serve(self, project: str) -> Any:
        hub = build(Options(project=project, profile="full"), [])
        self._stack.callback(self._end, hub)
        callers = allowed_callers(_HOST, _PORT, [])
        application = hub.server.streamable_http_app(streamable_http_path=PATH, transport_security=callers)
        self._stack.enter_context(
            self._portal.wrap_async_context_manager(application.router.lifespan_context(application))
        )
        admission = Admission(project, needs_token=True)
        share = _sharing()
        admission.submit(share)
        for queue, count in ((hub.workers._writes, 1), (hub.workers._reads, READERS)):
            # Each thread waits for the others, so that none of them takes two.
            barrier = threading.Barrier(count)
            for _ in range(count):
                queue.put(self._portal.call(_job, share, barrier))
        return Gate(application, callers, admission, on_session_end=hub.keepers.leave)

    def _end(self, hub: Hub) -> None:
        hub.stop_work()
        hub.workers.join(_SECONDS)


def _sharing() -> Callable[[], None]:
    connection = connections["default"]

    def share() -> None:
        connections["default"] = connection

    return share


async def _job(share: Callable[[], None], barrier: threading.Barrier) -> Job[None]:
    def work(_: Job[None]) -> None:
        share()
        barrier.wait(_SECONDS)

    return Job(work, asyncio.get_running_loop())


async def _answer(application: Any, headers: dict[str, str], body: bytes) -> Reply:
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": PATH,
        "raw_path": PATH.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": [(name.encode(), value.encode("utf-8")) for name, value in headers.items()],
        "client": ("127.0.0.1", 1),
        "server": (_HOST, _PORT),
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
