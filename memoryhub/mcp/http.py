"""The server over streamable HTTP: one process, one project, any number of clients."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import mcp.server.lowlevel  # noqa: F401  (whole, before ``serve`` would import it without its HTTP stack)
import uvicorn

from memoryhub import env
from memoryhub.core.errors import HubError
from memoryhub.core.secret_files import TOKEN, read_or_create_secret
from memoryhub.mcp.options import Options
from memoryhub.mcp.pump import LAST_WRITE_SECONDS
from memoryhub.mcp.serve import STOP_SIGNALS, THREAD_END_SECONDS, Hub, build
from memoryhub.ops.serving.listener import address_of, bind

if TYPE_CHECKING:
    from memoryhub.mcp.gate import Gate

PATH = "/mcp"
MAX_SESSIONS = 1_000
_GRACE_SECONDS = 2


def serve_http(options: Options, address: tuple[str, int]) -> int:
    try:
        with bind(*address, option="--http") as listener:
            hub = build(options, [])
            _announce(hub.binding.store().name, listener, options)
            return _run(hub, options, listener)
    except HubError as error:
        sys.stderr.write(f"{error.message}\n")
        return error.exit_code


def _announce(project: str, listener: socket.socket, options: Options) -> None:
    read_or_create_secret(TOKEN)
    callers = f"clients with the token in {env.home() / TOKEN} or an agent's token" if options.token else "everyone"
    where = "" if options.token else " on this machine"
    sys.stderr.write(f"Memory Hub serves {project} over MCP at {address_of(listener)}{PATH} to {callers}{where}\n")
    sys.stderr.flush()


def _run(hub: Hub, options: Options, listener: socket.socket) -> int:
    with asyncio.Runner() as runner:
        runner.run(_serve(hub, options, listener))
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)  # already exiting
    hub.keepers.leave_all()
    return 0


async def _serve(hub: Hub, options: Options, listener: socket.socket) -> None:
    from memoryhub.mcp.admission import Admission
    from memoryhub.mcp.gate import Gate, allowed_callers  # needs Django, which build() has set up
    from memoryhub.mcp.turns import IDLE_SECONDS

    host, port = listener.getsockname()[:2]
    callers = allowed_callers(host, port, options.allow_host)
    application = hub.server.streamable_http_app(
        streamable_http_path=PATH,
        transport_security=callers,
        max_sessions=MAX_SESSIONS,
        session_idle_timeout=IDLE_SECONDS,
    )
    admission = Admission(hub.binding.store().name, needs_token=options.token)
    gate = Gate(application, callers, admission, on_session_end=hub.keepers.leave)
    server = _Server(_configuration(gate))
    shutdown = _Shutdown(hub, gate, server)
    loop = asyncio.get_running_loop()
    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, shutdown.begin)
    await server.serve(sockets=[listener])
    hub.workers.join(THREAD_END_SECONDS)


def _configuration(application: Any) -> uvicorn.Config:
    return uvicorn.Config(
        application,
        http="h11",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )


class _Server(uvicorn.Server):
    """Doesn't handle signals: the hub has its own shutdown order and exit code."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Shutdown:
    """Shutdown: running calls first, then connections."""

    def __init__(self, hub: Hub, gate: Gate, server: uvicorn.Server) -> None:
        self._hub = hub
        self._gate = gate
        self._server = server
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        # A second signal doesn't wait for the running write.
        if self._task is not None:
            self._server.should_exit = True
            return
        self._hub.stop_work()
        self._task = asyncio.get_running_loop().create_task(self._end())

    async def _end(self) -> None:
        await self._gate.close(LAST_WRITE_SECONDS)
        self._server.should_exit = True
