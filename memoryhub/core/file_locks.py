"""Locks between processes with ``flock(2)``, which the system releases when a process dies (decision 22)."""

# Standard library only, and nothing slow at import: hooks use it.

from __future__ import annotations

import fcntl
import os
import time

_POLL_SECONDS = 0.005


def try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_locked(path: str) -> bool:
    """Return whether another process holds the lock of a file, and not only looks as this one does."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        return not try_share_lock(descriptor)
    finally:
        os.close(descriptor)


def is_at(path: str | os.PathLike[str], descriptor: int) -> bool:
    """Return whether an open file is still the one at its path."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))  # noqa: PTH116
    except FileNotFoundError:
        return False


def wait_for_lock(descriptor: int) -> None:
    fcntl.flock(descriptor, fcntl.LOCK_EX)


# Others may have it shared too
def share_lock(descriptor: int) -> None:
    fcntl.flock(descriptor, fcntl.LOCK_SH)


def try_share_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def unlock(descriptor: int) -> None:
    fcntl.flock(descriptor, fcntl.LOCK_UN)


def lock(descriptor: int, *, seconds: float) -> bool:
    """Wait for the exclusive lock of an open file; return False after ``seconds``."""
    deadline = time.monotonic() + seconds
    while not try_lock(descriptor):
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True
