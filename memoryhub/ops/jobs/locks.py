"""Leases among all machines of a hub: for one run of a job per store, with its progress, and for the worker."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import datetime

from memoryhub import env
from memoryhub.core import clock
from memoryhub.core.backends.base import Lease, Presence
from memoryhub.core.backends.selected import machines
from memoryhub.core.errors import Locked
from memoryhub.core.jobs import Job
from memoryhub.ops.jobs.targets import Target

_WORKER = "worker"


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
    def __init__(self, lease: Lease, begun: Begun) -> None:
        self._lease = lease
        self.begun = begun
        # The run before, where it died
        self.left_by: Begun | None = _parse(lease.left)

    def report(self, done: int, total: int) -> None:
        self.begun = replace(self.begun, done=done, total=total)
        self._lease.write(json.dumps(asdict(self.begun)))


@contextmanager
def hold(job: Job, target: Target, *, asked_by: str) -> Iterator[Held]:
    with machines.holding(name_of(job, target)) as lease:
        if lease is None:
            with look(job, target) as (other, _):
                since = f" since {other.started[:19].replace('T', ' ')} UTC (pid {other.pid})" if other else ""
            raise Locked(f"job {job.name!r} for {target.title} is already running{since}")
        yield Held(lease, begun_now(asked_by))


def begun_now(asked_by: str) -> Begun:
    machine = f" on {machines.machine()}" if machines.machine() else ""
    return Begun(os.getpid(), clock.to_text(clock.now()), f"{asked_by[:100]}{machine}")


@contextmanager
def look(job: Job, target: Target) -> Iterator[tuple[Begun | None, Begun | None]]:
    """Yield (current run, died run); at least one is None. On exit, clear what a died run left."""
    with machines.inspect(name_of(job, target)) as (now, left):
        yield _parse(now), _parse(left)


def name_of(job: Job, target: Target) -> str:
    own = f"@{machines.machine()}{env.home()}" if job.of_machine and machines.SHARED else ""
    return f"{job.slug}.{target.key}{own}"


def announce_worker() -> Presence:
    return machines.announce(_WORKER)


def worker_is_running() -> bool:
    """Return whether a worker runs, on any machine of this hub."""
    return machines.is_present(_WORKER)


def _parse(content: str) -> Begun | None:
    with contextlib.suppress(ValueError, TypeError):
        return Begun(**json.loads(content))
    return None
