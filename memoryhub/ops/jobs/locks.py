"""One run of a job per store: a file lock whose file has the process and its progress."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path

from memoryhub import env
from memoryhub.core import clock
from memoryhub.core.errors import Locked
from memoryhub.core.file_locks import lock, try_lock
from memoryhub.core.jobs import Job
from memoryhub.ops.jobs.targets import Target

_WIDTH = 512
_LOCK_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Begun:
    pid: int
    # ISO 8601, UTC
    started: str
    asked_by: str
    done: int = 0
    total: int = 0

    @property
    def started_at(self) -> datetime:
        return clock.from_text(self.started)


class Held:
    def __init__(self, descriptor: int, begun: Begun) -> None:
        self._descriptor = descriptor
        self.begun = begun
        # The run before, where it died
        self.left_by: Begun | None = _parse(os.pread(descriptor, _WIDTH, 0))

    def report(self, done: int, total: int) -> None:
        self.begun = replace(self.begun, done=done, total=total)
        os.pwrite(self._descriptor, json.dumps(asdict(self.begun)).encode().ljust(_WIDTH), 0)


# A file lock ends with its process, however that ends. Content of a file that nobody locks was left by a run
# that died (decision 22).
@contextmanager
def hold(job: Job, target: Target, *, asked_by: str) -> Iterator[Held]:
    descriptor = os.open(_path(job, target), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        _lock(descriptor, job, target)
        yield Held(descriptor, Begun(os.getpid(), clock.to_text(clock.now()), asked_by[:100]))
        os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


# Waits, because ``look`` also holds the lock for a moment
def _lock(descriptor: int, job: Job, target: Target) -> None:
    if lock(descriptor, seconds=_LOCK_SECONDS):
        return
    other = _parse(os.pread(descriptor, _WIDTH, 0))
    since = f" since {other.started[:19].replace('T', ' ')} UTC (pid {other.pid})" if other else ""
    raise Locked(f"job {job.name!r} for {target.title} is already running{since}")


@contextmanager
def look(job: Job, target: Target) -> Iterator[tuple[Begun | None, Begun | None]]:
    """Yield (current run, died run); at least one is None. On exit, clear what a died run left."""
    try:
        descriptor = os.open(_path(job, target), os.O_RDWR)
    except FileNotFoundError:
        yield None, None
        return
    try:
        content = _parse(os.pread(descriptor, _WIDTH, 0))
        if content is None:
            yield None, None
        elif try_lock(descriptor):
            yield None, _parse(os.pread(descriptor, _WIDTH, 0))  # the run may have ended meanwhile
            os.ftruncate(descriptor, 0)
        else:
            yield content, None
    finally:
        os.close(descriptor)


def _path(job: Job, target: Target) -> Path:
    folder = env.prepare_home() / "locks"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder / f"{job.slug}.{target.key}"


def _parse(content: bytes) -> Begun | None:
    with contextlib.suppress(ValueError, TypeError):
        return Begun(**json.loads(content))
    return None
