"""The web server: uvicorn in this process, on a loopback address."""

from __future__ import annotations

import ipaddress
import logging
import signal
import socket
import threading
from collections.abc import Callable
from importlib import import_module

import uvicorn
from django.conf import settings
from django.core.servers.basehttp import get_internal_wsgi_application

from memoryhub.config.teams import sending
from memoryhub.core.errors import Invalid, Unavailable
from memoryhub.core.stores import wal
from memoryhub.ops.serving import drain
from memoryhub.ops.serving.bridge import WsgiBridge
from memoryhub.ops.serving.listener import bind
from memoryhub.ops.serving.on_demand import Idle

logger = logging.getLogger(__name__)

_GRACE_SECONDS = 2


def listen_anywhere(port: int) -> socket.socket:
    """Return a socket that listens at the port, or at a free one where it is taken."""
    try:
        return listen("127.0.0.1", port)
    except Unavailable:
        return listen("127.0.0.1", 0)


def listen(host: str, port: int) -> socket.socket:
    return bind(_loopback(host), port, option="--port")


def _loopback(host: str) -> str:
    address = "127.0.0.1" if host == "localhost" else host
    try:
        allowed = ipaddress.ip_address(address).is_loopback
    except ValueError:
        allowed = False
    if not allowed:
        raise Invalid(
            f"--host {host} would open this hub to other machines; use 127.0.0.1, and a tunnel such as ssh -L from "
            "elsewhere"
        )
    return address


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, bridge: WsgiBridge) -> None:
        super().__init__(config)
        self._bridge = bridge

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._bridge.streams.close()  # otherwise uvicorn waits for them until its time limit
        await super().shutdown(sockets)


def serve(listener: socket.socket, *, idle: Idle | None = None) -> None:
    import_module(settings.ROOT_URLCONF)  # half a second that the first request, perhaps a hook, can't wait for
    bridge = WsgiBridge(
        get_internal_wsgi_application(),
        max_body=settings.DATA_UPLOAD_MAX_MEMORY_SIZE,
        on_request=idle.note_use if idle else lambda: None,
    )
    config = uvicorn.Config(
        bridge,
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )
    server = _Server(config, bridge)

    # A signal that comes before uvicorn handles it must not be lost; after its shutdown uvicorn raises it again, and
    # this process ends by returning.
    def end(*_: object) -> None:
        server.should_exit = True

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    stop = threading.Event()
    keepers: list[tuple[Callable[[threading.Event], None], str]] = [
        (wal.keep, "wal-keeper"),
        (drain.keep, "spool-drain"),
        (sending.keep, "team-sender"),
        *([(idle.watch, "idle-watch")] if idle else []),
    ]
    for keep, name in keepers:
        threading.Thread(target=keep, args=[stop], name=name, daemon=True).start()
    try:
        server.run(sockets=[listener])
    finally:
        stop.set()
        bridge.close()
