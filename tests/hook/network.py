"""A network between a client and a team's hub that can be told to fail."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

_CHUNK = 1 << 16


@dataclass
class Request:
    """A request as it was sent, and the connection on which it waits for an answer."""

    raw: bytes
    connection: socket.socket

    @property
    def event(self) -> str:
        return self.raw.split(b" ", 2)[1].rpartition(b"/")[2].decode()


# What becomes of a request; returns whether the connection is kept open.
Fate = Callable[["Network", Request], bool]


def passes(network: Network, request: Request) -> bool:
    """The hub's answer arrives."""
    request.connection.sendall(network.ask(request.raw))
    return True


def disappears(network: Network, request: Request) -> bool:
    """Nothing ever answers: the connection stays open until the network ends."""
    network.ended.wait()
    return False


def loses_answer(network: Network, request: Request) -> bool:
    """The hub has answered, and the connection breaks before the first byte arrives."""
    network.ask(request.raw)
    return False


def resets(network: Network, request: Request) -> bool:
    """Half of the hub's answer arrives, and then a reset."""
    answer = network.ask(request.raw)
    request.connection.sendall(answer[: len(answer) // 2])
    request.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return False


def fails(network: Network, request: Request) -> bool:
    """A proxy answers for a hub that is down."""
    request.connection.sendall(b"HTTP/1.1 500 Oops\r\nContent-Length: 4\r\n\r\noops")
    return True


def is_slow(network: Network, request: Request) -> bool:
    """The answer arrives once it is let through."""
    answer = network.ask(request.raw)
    network.let_through.wait()
    request.connection.sendall(answer)
    return True


@dataclass
class Network:
    host: str
    port: int
    fate: Fate = passes
    requests: list[Request] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)
    let_through: threading.Event = field(default_factory=threading.Event)
    listener: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))
    tls: ssl.SSLContext | None = None

    @property
    def url(self) -> str:
        scheme = "https" if self.tls else "http"
        return f"{scheme}://127.0.0.1:{self.listener.getsockname()[1]}"

    def ask(self, raw: bytes) -> bytes:
        own = self.url.partition("//")[2].encode()
        raw = raw.replace(b"Host: " + own, f"Host: {self.host}:{self.port}".encode(), 1)
        with socket.create_connection((self.host, self.port)) as hub:
            hub.sendall(raw)
            return _message(hub)

    def serve(self) -> None:
        while not self.ended.is_set():
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._talk, args=[connection], daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            if self.tls:
                connection = self.tls.wrap_socket(connection, server_side=True)
            while raw := _message(connection):
                request = Request(raw, connection)
                self.requests.append(request)
                if not self.fate(self, request):
                    break
        connection.close()


# One message: the head, and as much as its Content-Length says, or all chunks.
def _message(connection: socket.socket) -> bytes:
    raw = b""
    while b"\r\n\r\n" not in raw:
        part = connection.recv(_CHUNK)
        if not part:
            return b""
        raw += part
    head, _, body = raw.partition(b"\r\n\r\n")
    is_chunked = b"transfer-encoding: chunked" in head.lower()
    while is_chunked and not body.endswith(b"0\r\n\r\n"):
        body += connection.recv(_CHUNK)
    length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0] or 0)
    while len(body) < length:
        body += connection.recv(_CHUNK)
    return head + b"\r\n\r\n" + body


@contextmanager
def network_to(place: tuple[str, int], *, certificate: Path | None = None) -> Iterator[Network]:
    tls = None
    if certificate:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificate)
    network = Network(*place, tls=tls)
    thread = threading.Thread(target=network.serve, daemon=True)
    thread.start()
    try:
        yield network
    finally:
        network.ended.set()
        network.let_through.set()
        network.listener.shutdown(socket.SHUT_RDWR)
        network.listener.close()
        thread.join()
