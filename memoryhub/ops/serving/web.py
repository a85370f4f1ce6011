"""The web server: uvicorn with strict HTTP/1.1 and the hub's middleware."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import re
import signal
import socket
import threading
from collections.abc import Callable
from importlib import import_module
from typing import Any, ClassVar, Protocol

import h11
import uvicorn
from django.conf import settings
from django.core.handlers.wsgi import WSGIHandler
from django.core.servers.basehttp import get_internal_wsgi_application
from h11._receivebuffer import ReceiveBuffer
from uvicorn.protocols.http.h11_impl import H11Protocol

from memoryhub import env
from memoryhub.core import windows
from memoryhub.core.backends.selected import wiping
from memoryhub.core.errors import Invalid, Unavailable
from memoryhub.ops.serving import drain
from memoryhub.ops.serving.bridge import Receive, Scope, Send, Spool, WsgiBridge
from memoryhub.ops.serving.edge import BY_PUBLIC_SOCKET, Limiter, Limits, RequestGuard, network_of
from memoryhub.ops.serving.listener import (
    UVICORN_OPTIONS,
    Connections,
    Listener,
    bind,
    most_connections,
    raise_file_limit,
)
from memoryhub.ops.serving.live import Streams
from memoryhub.ops.serving.network import Network
from memoryhub.ops.serving.process import Idle, bound_allocator
from memoryhub.teams import sending

logger = logging.getLogger(__name__)

_GRACE_SECONDS = 2
_LOOK_SECONDS = 0.1
# From the start until pages are loaded without a request; the windows that started the hub come first
_LOAD_SECONDS = 5.0
_HANDSHAKE_SECONDS = 15
# Bytes of memory for all threads
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

    async def listen(self, windows: socket.socket) -> None:
        """Serve the clients of this home, beside the addresses."""

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


def listen_publicly(network: Network) -> Listener | None:
    return bind(*network.listen, option="--listen") if network.listen else None


def listen(host: str, port: int) -> Listener:
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
    return bind(address, port, option="--port")


class _Site:
    """The addresses of a mount, and Django for all others."""

    def __init__(self, bridge: WsgiBridge, mount: Mount | None, windows: socket.socket | None) -> None:
        self.bridge = bridge
        self.mount = mount
        self.windows = windows

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.mount and scope["type"] == "http" and self.mount.serves(scope["path"]):
            await self.mount(scope, receive, send)
        else:
            await self.bridge(scope, receive, send)


class _PublicServer(uvicorn.Server):
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
        if self._site.windows and self._site.mount:
            await self._site.mount.listen(self._site.windows)
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


class _Pages:
    """Django's WSGI application. To import its URLs takes half a second, which a window's first call can't wait for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._application: WSGIHandler | None = None

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        return self.load()(environ, start_response)

    def load(self) -> WSGIHandler:
        with self._lock:
            if self._application is None:
                import_module(settings.ROOT_URLCONF)
                import_module(settings.STORE_URLCONF)
                self._application = get_internal_wsgi_application()
            return self._application

    def load_soon(self, stop: threading.Event) -> None:
        if not stop.wait(_LOAD_SECONDS):
            self.load()


def serve(
    listener: Listener,
    *,
    ending: Ending,
    idle: Idle | None = None,
    mount: MakeMount | None = None,
    windows: socket.socket | None = None,
    public: Listener | None = None,
    network: Network | None = None,
    limits: Limits | None = None,
) -> None:
    """Serve on a loopback socket, one for this home's windows, and a public one, until a signal ends it."""
    bound_allocator(arenas=_ARENAS)
    network = network or Network()
    limits = limits or Limits()
    network.configure(settings)
    _limit_connections(listener, public, limits, network)
    pages = _Pages()
    on_request = idle.note_use if idle else lambda: None
    bridge = WsgiBridge(
        pages,
        max_body=settings.DATA_UPLOAD_MAX_MEMORY_SIZE,
        spool=Spool(env.home()),
        on_request=on_request,
    )
    site = _Site(bridge, mount(bridge.streams, on_request) if mount else None, windows)
    config = uvicorn.Config(
        RequestGuard(Limiter(site, limits), network),
        http=TimedProtocol.with_limits(limits),
        proxy_headers=False,
        timeout_graceful_shutdown=_GRACE_SECONDS,
        **UVICORN_OPTIONS,
    )
    server = _PublicServer(config, site, public, network, ending)
    stop = _start_keepers(idle, pages)
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
        )
        if network.certificate:
            public.connections.refusal = b""


# Returns the event that ends them
def _start_keepers(idle: Idle | None, pages: _Pages) -> threading.Event:
    stop = threading.Event()
    keepers: list[tuple[Callable[[threading.Event], None], str]] = [
        (wiping.keep, "wal-keeper"),
        (drain.keep, "spool-drain"),
        (windows.keep, "window-notes"),
        (sending.keep, "team-sender"),
        (pages.load_soon, "page-loader"),
    ]
    if idle:
        keepers.append((idle.watch, "idle-watch"))
    for keep, name in keepers:
        threading.Thread(target=keep, args=[stop], name=name, daemon=True).start()
    return stop


_TOO_LATE = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


# A request line and its headers
HEADER_BYTES = 16 * 1024
_END_OF_LINES = re.compile(rb"\n\r?\n")
# A line that doesn't end with CRLF, or continues the one before
_LOOSE_LINE = re.compile(rb"(?<!\r)\n|\r(?!\n)|\n[ \t]")
_LENGTH = re.compile(rb"^content-length[ \t]*:([^\n]*)", re.IGNORECASE | re.MULTILINE)
_LENGTH_DIGITS = 15
_CHUNK_SIZE = re.compile(rb"[0-9a-f]{1,8}[ \t]*(?:;[\t\x20-\x7e]{0,256})?\r\n", re.IGNORECASE)


# h11 reads some requests otherwise than a proxy in front of it may: it drops a length that repeats another, unfolds
# and ends lines leniently, and takes any version, and chunk sizes of 20 digits. It has no settings for these.
class StrictBuffer(ReceiveBuffer):
    # Called for heads and trailers; h11 limits those that arrive in parts
    def maybe_extract_lines(self) -> list[bytearray] | None:
        end = _END_OF_LINES.search(self._data)
        if end is not None:
            _check_lines(self._data, end)
        elif self._data[:1] == b"\n":
            raise h11.RemoteProtocolError("a line ends with CRLF")
        return super().maybe_extract_lines()

    # Called for the sizes of chunks
    def maybe_extract_next_line(self) -> bytearray | None:
        line = super().maybe_extract_next_line()
        if line is not None and not _CHUNK_SIZE.fullmatch(line):
            raise h11.RemoteProtocolError("a chunk has no valid size")
        return line


def _check_lines(received: bytearray, end: re.Match[bytes]) -> None:
    if received[:2] == b"\r\n":
        return  # no lines
    if end.end() > HEADER_BYTES:
        raise h11.RemoteProtocolError("the headers are too long", error_status_hint=431)
    if _LOOSE_LINE.search(received, 0, end.end()):
        raise h11.RemoteProtocolError("a line ends with CRLF and is not continued")
    lengths = _LENGTH.findall(received, 0, end.start())
    if len(lengths) > 1 or any(b"," in length or len(length.strip()) > _LENGTH_DIGITS for length in lengths):
        raise h11.RemoteProtocolError("a request has one Content-Length")


class StrictConnection(h11.Connection):
    def __init__(self) -> None:
        super().__init__(h11.SERVER, HEADER_BYTES)
        self._receive_buffer = StrictBuffer()

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Request):
            if event.http_version not in (b"1.0", b"1.1"):
                raise h11.RemoteProtocolError("the version is not HTTP/1.0 or HTTP/1.1", error_status_hint=505)
            if event.http_version == b"1.0" and any(name == b"transfer-encoding" for name, _ in event.headers):
                raise h11.RemoteProtocolError("a request of HTTP/1.0 has no Transfer-Encoding")
        return event


class TimedProtocol(H11Protocol):
    limits: ClassVar[Limits] = Limits()

    # What the client is sending, and the timers of that and of an answer that it does not read
    _phase: str = ""
    _sending: asyncio.TimerHandle | None = None
    _reading: asyncio.TimerHandle | None = None

    @classmethod
    def with_limits(cls, limits: Limits) -> type[TimedProtocol]:
        return type("LimitedProtocol", (cls,), {"limits": limits})

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.conn = StrictConnection()

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._enter("headers")

    def connection_lost(self, exc: Exception | None) -> None:
        self._enter("")
        self._stop_reading()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        super().handle_events()
        if self.conn.their_state is h11.SEND_BODY:
            self._enter("body")
        elif self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]:
            self._enter("headers")
        else:
            self._enter("")

    def pause_writing(self) -> None:
        super().pause_writing()
        self._abort_late()

    def resume_writing(self) -> None:
        self._stop_reading()
        super().resume_writing()

    # A client that does not read the end of its last answer would otherwise keep the connection for good.
    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        if self.transport.get_write_buffer_size():
            self._abort_late()

    def _abort_late(self) -> None:
        if self._reading is None:
            self._reading = self.loop.call_later(self.limits.answer_seconds, self.transport.abort)

    def _stop_reading(self) -> None:
        if self._reading:
            self._reading.cancel()
            self._reading = None

    # A phase that goes on keeps its timer, so that single bytes gain no time.
    def _enter(self, phase: str) -> None:
        if phase == self._phase:
            return
        self._phase = phase
        if self._sending:
            self._sending.cancel()
            self._sending = None
        if phase:
            seconds = self.limits.header_seconds if phase == "headers" else self.limits.body_seconds
            self._sending = self.loop.call_later(seconds, self._give_up)

    def _give_up(self) -> None:
        logger.info("a client took too long to send the %s of a request", self._phase)
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.write(_TOO_LATE)
        self.transport.close()
        if self.transport.get_write_buffer_size():
            self._abort_late()
