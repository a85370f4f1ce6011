"""The processes of database servers in tests: their user, folders, ports and end."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import socket
import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

HOST = "127.0.0.1"
START_SECONDS = 120.0
STOP_SECONDS = 60.0
_MEMORY = Path("/dev/shm")
_MEMORY_BYTES = 4 << 30


def as_user() -> dict[str, Any]:
    """Return what starts a process as another user where root runs the tests: neither program runs as root."""
    return {} if os.geteuid() else {"user": _user().pw_uid, "group": _user().pw_gid, "extra_groups": []}


@cache
def _user() -> pwd.struct_passwd:
    with contextlib.suppress(KeyError):
        return pwd.getpwnam("postgres")
    return pwd.getpwnam("nobody")


def temporary_folder(prefix: str, *, in_memory: bool = False) -> Path:
    if in_memory and _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > _MEMORY_BYTES:
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=_MEMORY))
    else:
        folder = Path(tempfile.mkdtemp(prefix=prefix))
    folder.chmod(0o711)  # the server's user passes through it
    return folder


def own_folder(path: Path) -> None:
    path.mkdir(mode=0o700)
    if not os.geteuid():
        os.chown(path, _user().pw_uid, _user().pw_gid)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        return int(listener.getsockname()[1])


def children_of(parent: int) -> list[int]:
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    return [pid for pid in pids if _stat(pid)[1:2] == [str(parent)]]


def is_alive(pid: int) -> bool:
    return _stat(pid)[:1] not in ([], ["Z"])


def _stat(pid: int) -> list[str]:
    """Return the fields after the name: state, parent, …; none for a process that is gone."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return []


def wait_for(condition: Callable[[], Any], *, what: str, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:g} s: {what}")
        time.sleep(0.02)
