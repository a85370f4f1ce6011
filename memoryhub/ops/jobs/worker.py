from __future__ import annotations

import os
from pathlib import Path

from memoryhub import env
from memoryhub.core.file_locks import share_lock, try_lock


def _path() -> Path:
    folder = env.prepare_home() / "locks"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder / "worker"


# Shared, so that the processes that the worker forks share the lock until the last has ended
def begin() -> int:
    descriptor = os.open(_path(), os.O_RDWR | os.O_CREAT, 0o600)
    share_lock(descriptor)
    return descriptor


def is_there() -> bool:
    descriptor = os.open(_path(), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        return not try_lock(descriptor)
    finally:
        os.close(descriptor)
