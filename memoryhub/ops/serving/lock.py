"""One server a home: a locked file that says where it serves."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from memoryhub import env
from memoryhub.core.errors import Conflict
from memoryhub.core.file_locks import lock, try_lock

FILE_NAME = "serve.lock"
_LOCK_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Running:
    """The server that holds the lock."""

    pid: int
    address: str


def _path() -> Path:
    return env.home() / FILE_NAME


@contextmanager
def hold() -> Iterator[Callable[[str], None]]:
    """Be the home's one server inside the block; yields a function that makes the server's address known.

    Raises:
        Conflict: another process is; the message names it.
    """
    descriptor = os.open(_path(), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        _lock(descriptor)
        os.ftruncate(descriptor, 0)
        yield lambda address: _write(descriptor, Running(os.getpid(), address))
        os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def _write(descriptor: int, running: Running) -> None:
    os.pwrite(descriptor, json.dumps(asdict(running)).encode(), 0)


def _lock(descriptor: int) -> None:
    """Take the lock; whoever only looks whether it is held, as hooks do, holds it for a moment."""
    if lock(descriptor, seconds=_LOCK_SECONDS):
        return
    other = _parse(os.pread(descriptor, 4096, 0))
    where = f" at {other.address} (process {other.pid})" if other else ""
    raise Conflict(f"Memory Hub is running already{where}; `memory-hub signin` prints a link to it, or stop it first")


def find_running() -> Running | None:
    """Return the server of this home, or None where none is running."""
    try:
        descriptor = os.open(_path(), os.O_RDWR)
    except FileNotFoundError:
        return None
    try:
        return None if try_lock(descriptor) else _parse(os.pread(descriptor, 4096, 0))
    finally:
        os.close(descriptor)


def _parse(content: bytes) -> Running | None:
    try:
        return Running(**json.loads(content))
    except (ValueError, TypeError):
        return None
