"""One run at a time of a job over a store: a locked file that says who is at it and how far.

The lock goes with its process, however that ends. What a file says that nobody holds was left by one that died.
"""

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
    """A run that has begun."""

    pid: int
    started: str
    """ISO 8601, UTC."""
    asked_by: str
    done: int = 0
    total: int = 0

    @property
    def started_at(self) -> datetime:
        """When it began."""
        return clock.from_text(self.started)


class Held:
    """The lock, in the hands of the run that has it."""

    def __init__(self, descriptor: int, begun: Begun) -> None:
        self._descriptor = descriptor
        self.begun = begun
        self.left_by: Begun | None = _parse(os.pread(descriptor, _WIDTH, 0))
        """The run before, where it died."""

    def tell(self, done: int, total: int) -> None:
        """Write down how far the run is."""
        self.begun = replace(self.begun, done=done, total=total)
        os.pwrite(self._descriptor, json.dumps(asdict(self.begun)).encode().ljust(_WIDTH), 0)


@contextmanager
def hold(job: Job, target: Target, *, asked_by: str) -> Iterator[Held]:
    """Be the one run of a job over a target inside the block.

    Raises:
        Locked: another process or thread is at it; the message names it.
    """
    descriptor = os.open(_path(job, target), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        _lock(descriptor, job, target)
        yield Held(descriptor, Begun(os.getpid(), clock.to_text(clock.now()), asked_by[:100]))
        os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def _lock(descriptor: int, job: Job, target: Target) -> None:
    """Take the lock; whoever only looks holds it for a moment."""
    if lock(descriptor, seconds=_LOCK_SECONDS):
        return
    other = _parse(os.pread(descriptor, _WIDTH, 0))
    since = f" since {other.started[:19].replace('T', ' ')} UTC (pid {other.pid})" if other else ""
    raise Locked(f"job {job.name!r} of {target.title} is running{since}")


@contextmanager
def look(job: Job, target: Target) -> Iterator[tuple[Begun | None, Begun | None]]:
    """Yield the run that goes on now, and the one that died; at most one of them.

    What a dead one left is cleared away at the block's end.
    """
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
            yield None, _parse(os.pread(descriptor, _WIDTH, 0))  # it may have ended since
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
