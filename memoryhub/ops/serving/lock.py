"""One server per home: a locked file with its address."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from memoryhub import __version__, env
from memoryhub.core import clock
from memoryhub.core.errors import Conflict
from memoryhub.core.file_locks import lock, try_lock

FILE_NAME = env.SERVE_LOCK
_LOCK_SECONDS = 0.1
# The other hub finishes what it has begun, and ends its workers
_TAKE_OVER_SECONDS = 30.0
BY_HAND, ON_DEMAND, SERVICE = "by hand", "on demand", "service"
_BY_HAND = "stop it with Ctrl-C, and start it again with `memory-hub serve`"
_RESTARTS = {
    ON_DEMAND: "`memory-hub serve` takes its place",
    SERVICE: "`memory-hub service restart` starts the new one",
}


@dataclass(frozen=True, slots=True)
class Running:
    pid: int
    address: str
    # ISO 8601 in UTC, and one of the three below; empty for a hub of an earlier version.
    since: str = ""
    started: str = ""
    # What people use, if the hub is reached from other machines
    public_url: str = ""
    # Empty for a hub of a version that did not write it
    version: str = ""

    @property
    def upgrade(self) -> str:
        """What to do if the hub is of another version than this process, as after an upgrade; else ""."""
        if self.version == __version__:
            return ""
        is_version = f"of version {self.version}" if self.version else "of an earlier version"
        return f"the running hub is {is_version}, and this is {__version__}; {_RESTARTS.get(self.started, _BY_HAND)}"


def _path() -> Path:
    return env.home() / FILE_NAME


@contextmanager
def hold(*, started: str) -> Iterator[Callable[..., None]]:
    descriptor = os.open(_path(), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        _lock(descriptor, takes_over=started != ON_DEMAND)
        os.ftruncate(descriptor, 0)
        since = clock.to_text(clock.now())

        def publish(address: str, url: str = "") -> None:
            _write(descriptor, Running(os.getpid(), address, since, started, url, __version__))

        yield publish
        os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def _write(descriptor: int, running: Running) -> None:
    os.pwrite(descriptor, json.dumps(asdict(running)).encode(), 0)


# Waits, because hooks and commands that only look also hold the lock for a moment
def _lock(descriptor: int, *, takes_over: bool) -> None:
    if lock(descriptor, seconds=_LOCK_SECONDS):
        return
    other = _parse(os.pread(descriptor, 4096, 0))
    if takes_over and other and other.started == ON_DEMAND:
        # A hub that a client started gives way to one that a person starts.
        os.kill(other.pid, signal.SIGTERM)
        if lock(descriptor, seconds=_TAKE_OVER_SECONDS):
            return
    where = f" at {other.address} (process {other.pid})" if other else ""
    raise Conflict(f"Memory Hub is already running{where}; stop it first, or print a link with `memory-hub signin`")


def find_running() -> Running | None:
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
        fields = Running.__dataclass_fields__  # a later version may write more
        return Running(**{name: value for name, value in json.loads(content).items() if name in fields})
    except (ValueError, TypeError, AttributeError):
        return None
