"""The server over streamable HTTP: one process, one project, any number of clients."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

import uvicorn

from memoryhub import env
from memoryhub.config.repository import working_folder
from memoryhub.core.errors import Forbidden, HubError
from memoryhub.core.secret_files import TOKEN, read_or_create_secret
from memoryhub.mcp import local
from memoryhub.mcp.options import LOOPBACK, Options
from memoryhub.ops.serving.listener import UVICORN_OPTIONS, address_of, bind

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from memoryhub.mcp.binding import Binding
    from memoryhub.mcp.gate import Check, Gate
    from memoryhub.mcp.host import Host

PATH = "/mcp"
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
MAX_BODY_BYTES = 4 * 1024 * 1024
_GRACE_SECONDS = 2


def serve_http(options: Options, address: tuple[str, int]) -> int:
    try:
        with bind(*address, option="--http") as listener:
            local.set_up(http=True)
            from memoryhub.mcp.binding import Binding  # needs Django

            binding = Binding(options.project, working_folder())
            project, callers = binding.store().name, "everyone on this machine"
            read_or_create_secret(TOKEN)
            if options.token:
                callers = f"clients with the token in {env.home() / TOKEN} or an agent's token"
            place = f"{address_of(listener)}{PATH}"
            sys.stderr.write(f"Memory Hub serves {project} over MCP at {place} to {callers}\n")
            sys.stderr.flush()
            with asyncio.Runner() as runner:
                host = runner.run(_serve(binding, options, listener))
            for number in _STOP_SIGNALS:
                signal.signal(number, signal.SIG_IGN)  # already exiting
            host.finish()
            return 0
    except HubError as error:
        sys.stderr.write(f"{error.message}\n")
        return error.exit_code


async def _serve(binding: Binding, options: Options, listener: socket.socket) -> Host:
    from memoryhub.mcp.admission import Admission
    from memoryhub.mcp.gate import Gate
    from memoryhub.mcp.host import Host
    from memoryhub.ops.serving.live import Streams

    project = binding.store().name
    address, port = listener.getsockname()[:2]
    with ThreadPoolExecutor(1, thread_name_prefix="memory-hub-live") as threads:
        host = Host(
            bind=lambda _: binding,
            profile=options.profile,
            streams=Streams(threads),
            lanes=local.open_lanes(),
            session=options.session,
        )
        gate = Gate(
            check=_check_for(address, port, options.allow_host),
            project_of=lambda path: project if path == PATH else None,
            admission=Admission(needs_token=options.token, require=_require_reach),
            load=host.start,
            max_body=MAX_BODY_BYTES,
        )
        await _serve_until_stopped(gate, listener)
    return host


async def _serve_until_stopped(gate: Gate, listener: socket.socket) -> None:
    config = uvicorn.Config(gate, http="h11", timeout_graceful_shutdown=_GRACE_SECONDS, **UVICORN_OPTIONS)
    server = _McpServer(config)
    loop = asyncio.get_running_loop()
    endings: list[asyncio.Task[None]] = []

    async def end() -> None:
        from memoryhub.mcp.threads import LAST_WRITE_SECONDS

        await gate.close(LAST_WRITE_SECONDS)  # running calls first, then connections
        server.should_exit = True

    def begin_to_end() -> None:
        if endings:
            server.should_exit = True  # a second signal doesn't wait for the running write
        else:
            endings.append(loop.create_task(end()))

    for number in _STOP_SIGNALS:
        loop.add_signal_handler(number, begin_to_end)
    await server.serve(sockets=[listener])


def _require_reach(project: str) -> None:
    from memoryhub.core.permissions import reaches  # ``set_up`` has set up Django

    if not reaches(f"project:{project}"):
        raise Forbidden("this token doesn't allow access to this server's project; ask an owner for one that does")


def _check_for(host: str, port: int, names: list[str]) -> Check:
    from mcp.server.transport_security import TransportSecurityMiddleware, TransportSecuritySettings

    hosts = []
    for name in (*LOOPBACK, host, *names):
        bracketed = f"[{name}]" if ":" in name else name
        hosts.append(f"{bracketed}:{port}")
    allowed = TransportSecuritySettings(
        allowed_hosts=[*hosts, *names], allowed_origins=[f"http://{name}" for name in hosts]
    )

    async def check(request: Request) -> Response | None:
        return await TransportSecurityMiddleware(allowed).validate_request(request)

    return check


class _McpServer(uvicorn.Server):
    """Doesn't handle signals: the hub has its own shutdown order and exit code."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
