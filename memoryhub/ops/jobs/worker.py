"""Whether a worker is there to do what is queued: it holds a lock for as long as it lives."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from memoryhub import env
from memoryhub.core.file_locks import try_lock


def _path() -> Path:
    folder = env.prepare_home() / "locks"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder / "worker"


def begin() -> int:
    """Be known as a worker until this process and those that it forks have ended; return the open file."""
    descriptor = os.open(_path(), os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor


def is_there() -> bool:
    """Return whether a worker lives."""
    descriptor = os.open(_path(), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        return not try_lock(descriptor)
    finally:
        os.close(descriptor)
