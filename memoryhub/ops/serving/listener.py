"""Sockets that the servers listen on, and how. Imports no Django, so that a server can refuse a port at once."""

from __future__ import annotations

import errno
import socket
from typing import Any

from memoryhub.core.errors import Unavailable
from memoryhub.ops.serving.connections import Listener

# Of `memory-hub serve` on 127.0.0.1
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
    except (OSError, OverflowError) as error:
        listener.close()
        reason = error.strerror if isinstance(error, OSError) else "it must be 0 to 65535"
        in_use = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
        hint = _of_every_hub(address, option) if in_use and port == PORT and option == "--listen" else option
        raise Unavailable(f"can't listen on {address} port {port} ({reason}); choose another with {hint}") from error
    return listener


def _of_every_hub(address: str, option: str) -> str:
    host = f"[{address}]" if ":" in address else address
    return f"{option} {host}:{PORT - 1}: {PORT} is the default port of every hub on this machine"


def address_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
