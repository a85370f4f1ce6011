"""What changes with jobs, schedules and the tasks of pages, for pages that follow it."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from pathlib import Path

from memoryhub import env
from memoryhub.core.backends.selected import machines
from memoryhub.core.background import running_tasks
from memoryhub.core.file_stamps import file_stamps
from memoryhub.ops.jobs.status import state_of_jobs
from memoryhub.ops.serving.live import Source, stamp_of_files

# How often a database that other machines use too is queried
_ASK_SECONDS = 1.0


def source_of_jobs() -> Source:
    return Source("jobs", _stamp, jobs_version)


def jobs_version() -> str:
    """Return what changes with every run of a job, its progress, every schedule, and every task."""
    state = state_of_jobs() if machines.SHARED else file_stamps(_files())
    tasks = [(task.id, task.version) for task in running_tasks()]
    return hashlib.sha256(repr((state, tasks)).encode()).hexdigest()[:16]


def _stamp() -> object:
    changed = time.monotonic() // _ASK_SECONDS if machines.SHARED else stamp_of_files(_files())
    return changed, [task.version for task in running_tasks()]


def _files() -> Iterator[Path]:
    home = env.home()
    yield from (home / name for name in ("hub.db", "hub.db-wal", "jobs.db", "jobs.db-wal"))
    yield from sorted((home / "locks").glob("*"))
