"""Listening sockets, with a limit to the open connections."""

from __future__ import annotations

import errno
import logging
import resource
import socket
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from memoryhub.core.errors import Unavailable

# Where `memory-hub serve` listens on 127.0.0.1
PORT = 8321
UVICORN_OPTIONS: dict[str, Any] = {
    "ws": "none",
    "lifespan": "off",
    "log_config": None,
    "access_log": False,
    "server_header": False,
    # Longer than clients and proxies keep an idle connection (httpx 5 s, nginx 60 s, Caddy 120 s), so that they close
    # it first: a request that is sent while the server closes its connection is lost, and a write is not repeated.
    "timeout_keep_alive": 130,
}


def bind(address: str, port: int, *, option: str) -> Listener:
    """Return a socket that listens there; ``option`` is the one that changes the address."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    # Only with IPPROTO_TCP does asyncio disable Nagle's algorithm, which costs 40 ms per answer
    listener = Listener(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((address, port))
        listener.listen(128)
    except OverflowError as error:
        listener.close()
        where = f"{address} port {port} (it must be 0 to 65535)"
        raise Unavailable(f"can't listen on {where}; choose another with {option}") from error
    except OSError as error:
        listener.close()
        hint = option
        if error.errno == errno.EADDRINUSE and port == PORT and option == "--listen":
            other = f"{option} {in_url(address)}:{PORT - 1}"
            hint = f"{other}: {PORT} is the default port of every hub on this machine"
        where = f"{address} port {port} ({error.strerror})"
        raise Unavailable(f"can't listen on {where}; choose another with {hint}") from error
    return listener


def in_url(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def address_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://{in_url(host)}:{port}"


logger = logging.getLogger(__name__)

_TOO_MANY = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
# Open files of a process: more would make a child's start slow where it closes each of them.
_MOST_FILES = 65_536
# The public and the loopback socket get a quarter each; databases and spooled answers need the rest.
_SHARES = 4
# Refused in one turn of the event loop
_MOST_REFUSED = 100


def raise_file_limit() -> int:
    """Allow this process as many open files as it may have, and return how many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    if soft == unlimited:
        return _MOST_FILES
    limit = _MOST_FILES
    if hard != unlimited:
        limit = min(hard, _MOST_FILES)
    if soft < limit:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
            soft = limit
    return soft


def most_connections(desired: float, files: int) -> int:
    """Return how many connections one socket may have in a process with so many files."""
    return max(1, min(int(desired), files // _SHARES))


class Connections:
    """The open connections of one listening socket, by address.

    ``address_of`` maps a peer to what is counted as one address, or to "" if only the total counts.
    """

    def __init__(
        self,
        most: int,
        *,
        most_of_an_address: float = float("inf"),
        address_of: Callable[[str], str] = lambda _: "",
    ) -> None:
        self._most, self._most_of_an_address = most, most_of_an_address
        self._address_of = address_of
        self.refusal = _TOO_MANY
        self._open: Counter[str] = Counter()

    @property
    def total(self) -> int:
        return self._open.total()

    def begin(self, peer: str) -> Callable[[], None] | None:
        """Count a connection; return what to call at its end, or None if there are too many."""
        address = self._address_of(peer)
        if self.total >= self._most or (address and self._open[address] >= self._most_of_an_address):
            return None
        self._open[address] += 1
        return lambda: self._end(address)

    def _end(self, address: str) -> None:
        self._open[address] -= 1
        if not self._open[address]:
            del self._open[address]


class Listener(socket.socket):
    """A listening socket that closes connections beyond its limits at once."""

    connections: Connections | None = None

    def accept(self) -> tuple[socket.socket, Any]:
        for _ in range(_MOST_REFUSED):
            accepted, address = super().accept()
            if self.connections is None:
                return accepted, address
            end = self.connections.begin(address[0])
            if end is not None:
                return _Counted.of(accepted, end), address
            with accepted, suppress(OSError):
                accepted.setblocking(False)
                accepted.send(self.connections.refusal)
        raise BlockingIOError


class _Counted(socket.socket):
    _end: Callable[[], None] | None = None

    @classmethod
    def of(cls, accepted: socket.socket, end: Callable[[], None]) -> _Counted:
        counted = cls(accepted.family, accepted.type, accepted.proto, fileno=accepted.detach())
        counted._end = end
        return counted

    def close(self) -> None:
        super().close()
        end, self._end = self._end, None
        if end:
            end()
