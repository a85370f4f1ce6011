"""Post one event to the running hub: HTTP over a raw socket, with a timeout for each step.

Uses ``_socket``: importing ``socket`` takes a third as long as starting Python, ``http.client`` three times that.
"""

from __future__ import annotations

import os
import time
from _socket import AF_INET, AF_INET6, SOCK_STREAM
from _socket import socket as new_socket

from memoryhub.config import enabled
from memoryhub.config.hook_table import HookEffect
from memoryhub.core import windows
from memoryhub.core.file_locks import try_share_lock
from memoryhub.core.secret_files import TOKEN, sound_secret
from memoryhub.env import home_text

MAX_ANSWER = 1 << 20
# The environment of this process decides that the hub is enabled, not the event's folder.
_ENABLED = "Memory-Hub-Enabled: true\r\n"
# Refusals that may succeed later, as all 5xx may.
_PASSING = frozenset({401, 408, 423, 429})


class ClientEvent:
    __slots__ = ("at", "body", "client", "deadline", "effect", "key", "name", "project", "takes_context", "window")

    def __init__(self, client: str, name: str, project: str = "") -> None:
        self.client = client
        self.name = name
        self.project = project
        self.window = windows.window()
        self.body = b""
        # As in the client's table; NOTHING also for an event that is unknown.
        self.effect = HookEffect.NOTHING
        # Whether the client adds the answer to its model's context.
        self.takes_context = False
        # Monotonic clock.
        self.deadline = 0.0
        # Milliseconds since 1970.
        self.at = time.time_ns() // 1_000_000
        # Posted and spooled events share the idempotency key, so that each is recorded once.
        self.key = f"hook-{self.at:x}-{os.urandom(6).hex()}"


class HubAnswer:
    __slots__ = ("body", "status")

    def __init__(self, status: int, body: bytes) -> None:
        self.status = status
        self.body = body

    @property
    def is_passing(self) -> bool:
        return self.status >= 500 or self.status in _PASSING

    @property
    def is_refusal(self) -> bool:
        return not 200 <= self.status < 300

    def sentence(self) -> str:
        import json

        try:
            problem = json.loads(self.body)
            sentence = problem["detail"]
            choices = problem.get("choices")
        except (ValueError, KeyError, TypeError):
            return f"the hub answered {self.status}; the event is not kept"
        if isinstance(choices, list):
            sentence = f"{sentence} (one of: {', '.join(map(str, choices))})"
        return f"{sentence}; the event is not kept"


def send(event: ClientEvent, *, connect_seconds: float) -> new_socket | None:
    """Send the event, and return the connection on which the hub will answer; None if there is no hub."""
    hub = _hub()
    if hub is None:
        return None
    address, token = hub
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


def receive(connection: new_socket, deadline: float) -> HubAnswer | None:
    """Return the hub's answer and close the connection; None if none arrives before the deadline."""
    try:
        head, _, body = _received(connection, deadline).partition(b"\r\n\r\n")
        status = int(head.split(b" ", 2)[1])
        declared = head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0]
        if declared and len(body) != int(declared):
            return None  # it was cut short
        return HubAnswer(status, body)
    except (OSError, ValueError, IndexError):
        return None
    finally:
        connection.close()


# Address and token of the running hub. The lock decides, not the port: another process that listens there would receive
# the token and the event.
def _hub() -> tuple[str, str] | None:
    home = home_text()
    try:
        descriptor = os.open(f"{home}/serve.lock", os.O_RDWR)
        try:
            if try_share_lock(descriptor):
                return None
            state = os.pread(descriptor, 4096, 0).decode()
            token = sound_secret(TOKEN)
            if not token:
                return None
            return state.partition('"http://')[2].partition('"')[0], token
        finally:
            os.close(descriptor)
    except (OSError, ValueError):
        return None


def _request(event: ClientEvent, address: str, token: str) -> bytes:
    query = f"?project={event.project}" if event.project else ""
    head = (
        f"POST /api/v1/hooks/{event.client}/{event.name}{query} HTTP/1.1\r\n"
        f"Host: {address}\r\n"
        f"Authorization: Bearer {token}\r\n"
        f"Idempotency-Key: {event.key}\r\n"
        f"Memory-Hub-Window: {event.window}\r\n"
        f"{_ENABLED if enabled.VARIABLE in os.environ else ''}"
        "Content-Type: application/json\r\n"
        f"Content-Length: {len(event.body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode("ascii") + event.body


# The hub closes the connection after its answer.
def _received(connection: new_socket, deadline: float) -> bytes:
    parts: list[bytes] = []
    size = 0
    while size <= MAX_ANSWER:
        seconds = deadline - time.monotonic()
        if seconds <= 0:
            raise TimeoutError
        connection.settimeout(seconds)
        part = connection.recv(1 << 16)
        if not part:
            return b"".join(parts)
        parts.append(part)
        size += len(part)
    raise ValueError("the answer is too long")
