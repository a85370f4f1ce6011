"""MCP of all projects in the hub, at ``/p/<project>/mcp``. The first admitted request loads the SDK."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.http.request import split_domain_port, validate_host

from memoryhub.core.stores.store import SLUG, project_store, require_store
from memoryhub.mcp.threads import LAST_WRITE_SECONDS
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
        self._closing = False

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
        if self._gate:
            await self._gate.close(LAST_WRITE_SECONDS)

    def end(self) -> None:
        if self._host:
            self._host.finish()

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
        # In a thread, because it takes a third of a second.
        host = await asyncio.to_thread(_import_host)
        from memoryhub.mcp.binding import Binding

        self._host = host(
            bind=lambda project: Binding(project, None),
            profile=PROFILE,
            streams=self._streams,
            writers=WRITERS,
            readers=READERS,
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


def _import_host() -> type[Host]:
    from memoryhub.mcp import sdk

    sdk.load(http=True)
    with sdk.deferred_models():
        from memoryhub.mcp import listing

        listing.load_tools()
        from memoryhub.mcp.host import Host
    return Host
