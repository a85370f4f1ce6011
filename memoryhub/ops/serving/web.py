"""The web server: uvicorn in this process, on a loopback address, and on a public one if it is given."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import signal
import socket
import threading
from collections.abc import Callable
from importlib import import_module
from typing import Protocol

import uvicorn
from django.conf import settings
from django.core.servers.basehttp import get_internal_wsgi_application

from memoryhub import env
from memoryhub.core import windows
from memoryhub.core.backends.selected import wiping
from memoryhub.core.errors import Invalid, Unavailable
from memoryhub.ops.serving import drain
from memoryhub.ops.serving.allocator import bound_allocator
from memoryhub.ops.serving.bridge import Receive, Scope, Send, WsgiBridge
from memoryhub.ops.serving.connections import Connections, Listener, most_connections, raise_file_limit
from memoryhub.ops.serving.edge import BY_PUBLIC_SOCKET, Edge
from memoryhub.ops.serving.limits import Limiter, Limits, network_of
from memoryhub.ops.serving.listener import UVICORN_OPTIONS, bind
from memoryhub.ops.serving.live import Streams
from memoryhub.ops.serving.network import Network
from memoryhub.ops.serving.on_demand import Idle
from memoryhub.ops.serving.outbox import Spool
from memoryhub.ops.serving.protocol import TimedProtocol
from memoryhub.teams import sending

logger = logging.getLogger(__name__)

_GRACE_SECONDS = 2
_LOOK_SECONDS = 0.1
_HANDSHAKE_SECONDS = 15
# Of memory, for all threads
_ARENAS = 2


class Ending:
    """Notes SIGINT and SIGTERM from its creation on, until the server handles them.

    A handler that raises KeyboardInterrupt would lose some: Python drops an exception that is raised in the callback
    of a weak reference, and each import has such callbacks.
    """

    def __init__(self) -> None:
        self.is_due = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._note)

    def _note(self, *_: object) -> None:
        self.is_due = True


class Mount(Protocol):
    """An ASGI application beside Django, for some addresses."""

    def serves(self, path: str) -> bool: ...

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...

    async def close(self) -> None:
        """Finish what was begun, and refuse what comes after."""

    def end(self) -> None:
        """Clean up after the event loop."""


# Takes the streams that pages follow, and what a request calls that keeps an idle hub running.
MakeMount = Callable[[Streams, Callable[[], None]], Mount]


def listen_anywhere(port: int) -> Listener:
    """Return a socket that listens at the port, or at a free one where it is taken."""
    try:
        return listen("127.0.0.1", port)
    except Unavailable:
        return listen("127.0.0.1", 0)


def listen(host: str, port: int) -> Listener:
    return bind(_loopback(host), port, option="--port")


def listen_publicly(network: Network) -> Listener | None:
    """Return a socket that listens at the network's address, if it has one."""
    return bind(*network.listen, option="--listen") if network.listen else None


def _loopback(host: str) -> str:
    address = "127.0.0.1" if host == "localhost" else host
    try:
        allowed = ipaddress.ip_address(address).is_loopback
    except ValueError:
        allowed = False
    if not allowed:
        raise Invalid(
            f"--host {host} would open this hub to other machines; use 127.0.0.1, and --listen with --public-url for "
            "other machines"
        )
    return address


class _Site:
    """The addresses of a mount, and Django for all others."""

    def __init__(self, bridge: WsgiBridge, mount: Mount | None) -> None:
        self.bridge = bridge
        self.mount = mount

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        served_by_mount = self.mount and scope["type"] == "http" and self.mount.serves(scope["path"])
        await (self.mount if self.mount and served_by_mount else self.bridge)(scope, receive, send)


class _Server(uvicorn.Server):
    def __init__(
        self, config: uvicorn.Config, site: _Site, public: socket.socket | None, network: Network, ending: Ending
    ) -> None:
        super().__init__(config)
        self._ending = ending
        self._site = site
        self._public = public
        self._network = network

    # The socket for this machine's clients has no TLS, and the public one may have it.
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.should_exit = self.should_exit or self._ending.is_due  # uvicorn handles signals by now
        if self._public is None:
            return
        certificate = self._network.certificate
        server = await asyncio.get_running_loop().create_server(
            self._new_public_connection,
            sock=self._public,
            ssl=certificate,
            ssl_handshake_timeout=_HANDSHAKE_SECONDS if certificate else None,
        )
        self.servers.append(server)

    def _new_public_connection(self) -> asyncio.Protocol:
        protocol: asyncio.Protocol = self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config,
            server_state=self.server_state,
            app_state={**self.lifespan.state, BY_PUBLIC_SOCKET: True},
        )
        return protocol

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._site.bridge.streams.close()  # otherwise uvicorn waits for them until its time limit
        if self._site.mount:
            closing = asyncio.ensure_future(self._site.mount.close())
            while not (closing.done() or self.force_exit):  # a second Ctrl-C doesn't wait
                await asyncio.wait({closing}, timeout=_LOOK_SECONDS)
            closing.cancel()
        await super().shutdown(sockets)


def serve(
    listener: Listener,
    *,
    ending: Ending,
    idle: Idle | None = None,
    mount: MakeMount | None = None,
    public: Listener | None = None,
    network: Network | None = None,
    limits: Limits | None = None,
) -> None:
    """Serve on a loopback socket, and on a public one, until a signal ends it."""
    bound_allocator(arenas=_ARENAS)
    network, limits = network or Network(), limits or Limits()
    network.configure(settings)
    _limit_connections(listener, public, limits, network)
    import_module(settings.ROOT_URLCONF)  # half a second that the first request, perhaps a hook, can't wait for
    on_request = idle.note_use if idle else lambda: None
    bridge = WsgiBridge(
        get_internal_wsgi_application(),
        max_body=settings.DATA_UPLOAD_MAX_MEMORY_SIZE,
        spool=Spool(env.home()),
        on_request=on_request,
    )
    site = _Site(bridge, mount(bridge.streams, on_request) if mount else None)
    server = _Server(_config(site, limits, network), site, public, network, ending)
    stop = _start_keepers(idle)
    try:
        server.run(sockets=[listener])  # raises the signal again at its end, for ``ending``
    finally:
        stop.set()
        if site.mount:
            site.mount.end()
        bridge.close()


# Each socket is counted for itself, so that this machine's clients are served even if others fill the public one.
def _limit_connections(listener: Listener, public: Listener | None, limits: Limits, network: Network) -> None:
    most = most_connections(limits.connections, raise_file_limit())
    listener.connections = Connections(most)
    if public is not None:
        public.connections = Connections(
            most,
            most_of_an_address=limits.address_connections,
            address_of=lambda peer: "" if network.is_proxy(peer) else network_of(peer),
            **({"refusal": b""} if network.certificate else {}),
        )


def _config(site: _Site, limits: Limits, network: Network) -> uvicorn.Config:
    return uvicorn.Config(
        Edge(Limiter(site, limits), network),
        http=TimedProtocol.with_limits(limits),
        proxy_headers=False,
        timeout_graceful_shutdown=_GRACE_SECONDS,
        **UVICORN_OPTIONS,
    )


# Returns the event that ends them
def _start_keepers(idle: Idle | None) -> threading.Event:
    stop = threading.Event()
    keepers: list[tuple[Callable[[threading.Event], None], str]] = [
        (wiping.keep, "wal-keeper"),
        (drain.keep, "spool-drain"),
        (windows.keep, "window-notes"),
        (sending.keep, "team-sender"),
        *([(idle.watch, "idle-watch")] if idle else []),
    ]
    for keep, name in keepers:
        threading.Thread(target=keep, args=[stop], name=name, daemon=True).start()
    return stop
