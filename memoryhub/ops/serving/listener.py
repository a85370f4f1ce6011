"""Sockets that the servers listen on. Imports no Django, so that a server can refuse a port at once."""

from __future__ import annotations

import socket

from memoryhub.core.errors import Unavailable


def bind(address: str, port: int, *, option: str) -> socket.socket:
    """Return a socket that listens there; ``option`` is the one that changes the address."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    # Only with IPPROTO_TCP does asyncio disable Nagle's algorithm, which costs 40 ms per answer
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((address, port))
        listener.listen(128)
    except (OSError, OverflowError) as error:
        listener.close()
        reason = error.strerror if isinstance(error, OSError) else "it must be 0 to 65535"
        raise Unavailable(f"can't listen on {address} port {port} ({reason}); choose another with {option}") from error
    return listener


def address_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
