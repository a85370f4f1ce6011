"""Post one event to the running hub: HTTP by hand over one socket, each step with an end.

Written on ``_socket``, because importing ``socket`` costs a third of starting Python, and ``http.client`` thrice that.
"""

from __future__ import annotations

import fcntl
import os
import time
from _socket import AF_INET, AF_INET6, SOCK_STREAM
from _socket import socket as new_socket

from memoryhub.core.secret_files import TOKEN, sound_secret
from memoryhub.env import home_text

MAX_ANSWER = 1 << 20
CLIENTS_FILE = __file__.rpartition("/client/")[0] + "/config/clients.toml"
_PASSING = frozenset({401, 408, 423, 429})
"""Refusals that may be none the next time; beside all that are the hub's own fault."""


class Event:
    """One event of a client, as it came."""

    __slots__ = ("at", "body", "client", "deadline", "effect", "key", "name", "project")

    def __init__(self, client: str, name: str, project: str = "") -> None:
        self.client = client
        self.name = name
        self.project = project
        self.body = b""
        self.effect = ""
        """What the client's table declares; "" where it is not known."""
        self.deadline = 0.0
        """On the monotonic clock: until then it may be answered."""
        self.at = time.time_ns() // 1_000_000
        """Milliseconds since 1970."""
        self.key = f"hook-{self.at:x}-{os.urandom(6).hex()}"
        """The same when it is posted and when it is kept, so that it counts once."""


class Answer:
    """What the hub answered."""

    __slots__ = ("body", "status")

    def __init__(self, status: int, body: bytes) -> None:
        self.status = status
        self.body = body

    @property
    def is_passing(self) -> bool:
        """Whether it is worth trying again later."""
        return self.status >= 500 or self.status in _PASSING

    @property
    def is_refusal(self) -> bool:
        """Whether the hub will never take it."""
        return not 200 <= self.status < 300

    def sentence(self) -> str:
        """Return why it was refused."""
        import json

        try:
            problem = json.loads(self.body)
            return f"{problem['detail']}{_choices(problem)}; the event is not kept"
        except (ValueError, KeyError, TypeError):
            return f"the hub answered {self.status}; the event is not kept"


def _choices(problem: dict[str, object]) -> str:
    choices = problem.get("choices")
    return f" (one of: {', '.join(map(str, choices))})" if isinstance(choices, list) else ""


def send(event: Event, *, connect_seconds: float) -> new_socket | None:
    """Send the event whole, and return the connection on which the hub will answer; None where there is no hub."""
    found = _hub()
    if found is None:
        return None
    address, token = found
    host, _, port = address.rpartition(":")
    connection = new_socket(AF_INET6 if host.startswith("[") else AF_INET, SOCK_STREAM)
    try:
        connection.settimeout(connect_seconds)
        connection.connect((host.strip("[]"), int(port)))
        connection.settimeout(max(0.001, event.deadline - time.monotonic()))
        connection.sendall(_request(event, address, token))
    except (OSError, ValueError):
        connection.close()
        return None
    return connection


def receive(connection: new_socket, deadline: float) -> Answer | None:
    """Return the hub's whole answer, and close the connection; None where none comes before the deadline."""
    try:
        return _parsed(_received(connection, deadline))
    except (OSError, ValueError, IndexError):
        return None
    finally:
        connection.close()


def _hub() -> tuple[str, str] | None:
    """Return ``host:port`` of this home's hub and its token; None where no hub holds the home's lock, or has a token.

    Asked of the lock and not of the port: whoever else listened there would be told the token and the event.
    """
    home = home_text()
    try:
        descriptor = os.open(f"{home}/serve.lock", os.O_RDWR)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            known = os.pread(descriptor, 4096, 0).decode()
            token = sound_secret(TOKEN)
            return (known.partition('"http://')[2].partition('"')[0], token) if token else None
        finally:
            os.close(descriptor)
    except (OSError, ValueError):
        return None
    return None


def _request(event: Event, address: str, token: str) -> bytes:
    query = f"?project={event.project}" if event.project else ""
    head = (
        f"POST /api/v1/hooks/{event.client}/{event.name}{query} HTTP/1.1\r\n"
        f"Host: {address}\r\n"
        f"Authorization: Bearer {token}\r\n"
        f"Idempotency-Key: {event.key}\r\n"
        "Content-Type: application/json\r\n"
        f"Content-Length: {len(event.body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode("ascii") + event.body


def _received(connection: new_socket, deadline: float) -> bytes:
    """Return all that comes until the hub closes the connection."""
    parts: list[bytes] = []
    size = 0
    while size <= MAX_ANSWER:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        connection.settimeout(left)
        part = connection.recv(1 << 16)
        if not part:
            return b"".join(parts)
        parts.append(part)
        size += len(part)
    raise ValueError("the answer is too long")


def _parsed(raw: bytes) -> Answer:
    head, _, body = raw.partition(b"\r\n\r\n")
    status = int(head.split(b" ", 2)[1])
    declared = head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0]
    if declared and len(body) != int(declared):
        raise ValueError("the answer was cut short")
    return Answer(status, body)
