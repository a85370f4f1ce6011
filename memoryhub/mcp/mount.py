"""MCP in the hub: for the home's windows at a socket, and for all projects at ``/p/<project>/mcp``.

The first window, or the first admitted request, loads the SDK.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.http.request import split_domain_port, validate_host

from memoryhub.core.stores.store import SLUG, project_store, require_store
from memoryhub.mcp import local
from memoryhub.mcp.local import Connection, Windows
from memoryhub.mcp.threads import LAST_WRITE_SECONDS, THREAD_END_SECONDS, Lanes
from memoryhub.ops.serving.live import Streams

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from memoryhub.mcp.gate import Gate
    from memoryhub.mcp.host import Host

# One project has at most one write and two reads at a time, so no project can occupy all threads.
WRITERS, READERS = 2, 4
PROFILE = "core"
_ADDRESS = re.compile(rf"/p/({SLUG.pattern})/mcp")


class McpMount:
    def __init__(self, streams: Streams, on_call: Callable[[], None]) -> None:
        self._streams = streams
        self._on_call = on_call
        self._gate: Gate | None = None
        self._host: Host | None = None
        self._listening: asyncio.Server | None = None
        self._closing = False
        self._windows = Windows(lambda: self._lanes, lambda: local.load(http=True))

    @cached_property
    def _lanes(self) -> Lanes:
        return local.open_lanes(writers=WRITERS, readers=READERS)

    async def listen(self, listener: socket.socket) -> None:
        """Serve the windows of this home, whose relays connect to the socket."""
        loop = asyncio.get_running_loop()
        self._listening = await loop.create_unix_server(lambda: Connection(self._windows), sock=listener)

    def serves(self, path: str) -> bool:
        return _ADDRESS.fullmatch(path) is not None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if self._gate is None:
            self._gate = self._make_gate()
            if self._closing:
                await self._gate.close(0)
        await self._gate(scope, receive, send)

    async def close(self) -> None:
        self._closing = True
        if self._listening:
            self._listening.close()
        await self._windows.close()
        if self._gate:
            await self._gate.close(LAST_WRITE_SECONDS)

    def end(self) -> None:
        if self._host:
            self._host.finish()
        elif "_lanes" in self.__dict__:
            self._lanes.join(THREAD_END_SECONDS)

    def _make_gate(self) -> Gate:
        from memoryhub.mcp.admission import Admission
        from memoryhub.mcp.gate import Gate

        return Gate(
            check=check_caller,
            project_of=_project_of,
            admission=Admission(needs_token=True, require=lambda project: require_store(project_store(project))),
            load=self._load,
            max_body=settings.DATA_UPLOAD_MAX_MEMORY_SIZE,
            on_call=self._on_call,
        )

    async def _load(self) -> Host:
        await self._windows.ready()
        from memoryhub.mcp.binding import Binding
        from memoryhub.mcp.host import Host

        self._host = Host(
            bind=lambda project: Binding(project, None), profile=PROFILE, streams=self._streams, lanes=self._lanes
        )
        return await self._host.start()


async def check_caller(request: Request) -> Response | None:
    from starlette.responses import PlainTextResponse

    host = request.headers.get("host", "")
    origin = request.headers.get("origin")
    name, _ = split_domain_port(host)
    if not name or not validate_host(name, settings.ALLOWED_HOSTS):
        return PlainTextResponse("Invalid Host header\n", 421)
    if origin is not None and origin not in (*settings.CSRF_TRUSTED_ORIGINS, f"{request.url.scheme}://{host}"):
        return PlainTextResponse("Invalid Origin header\n", 403)
    return None


def _project_of(path: str) -> str | None:
    address = _ADDRESS.fullmatch(path)
    return address[1] if address else None
