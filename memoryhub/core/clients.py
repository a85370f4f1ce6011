"""The clients that are connected to this home over stdio: each holds the lock of a file of its own.

The system releases the lock however the process ends, so a file whose lock is free belongs to a client that has left.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from memoryhub import env
from memoryhub.core import clock
from memoryhub.core.file_locks import is_at, lock, try_lock

FOLDER = "run/clients"
_LOCK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class ConnectedClient:
    pid: int
    # As the client names itself; empty until its first call.
    name: str
    project: str
    # ISO 8601, UTC.
    since: str


class ClientEntry:
    """The entry of a client's process among the connected, until this process ends or ``close`` is called."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        folder = env.prepare_home() / FOLDER
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path = folder / f"{pid}-{os.urandom(3).hex()}.json"
        self._since = clock.to_text(clock.now())
        self._descriptor = _open_locked(self._path)
        self.describe("", "")

    def describe(self, name: str, project: str) -> None:
        content = json.dumps(asdict(ConnectedClient(self._pid, name, project, self._since))).encode()
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, content, 0)

    def close(self) -> None:
        self._path.unlink(missing_ok=True)
        os.close(self._descriptor)


# A process that lists the clients may hold the lock at this moment, and remove the file after it.
def _open_locked(path: Path) -> int:
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        if not lock(descriptor, seconds=_LOCK_SECONDS) or is_at(path, descriptor):
            return descriptor
        os.close(descriptor)


def connected_clients() -> list[ConnectedClient]:
    """Return the connected clients, the first to connect first; removes the entries of those that have left."""
    clients = filter(None, map(_read_client, (env.home() / FOLDER).glob("*.json")))
    return sorted(clients, key=lambda client: client.since)


def _read_client(path: Path) -> ConnectedClient | None:
    try:
        descriptor = os.open(path, os.O_RDWR)
    except OSError:
        return None
    try:
        if try_lock(descriptor):
            path.unlink(missing_ok=True)
            return None
        return ConnectedClient(**json.loads(os.pread(descriptor, 4096, 0)))
    except (ValueError, TypeError):
        return None  # it connects at this moment
    finally:
        os.close(descriptor)
