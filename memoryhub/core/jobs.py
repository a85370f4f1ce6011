"""Background jobs: each app's ``jobs.py`` declares its own with ``define_job``."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from memoryhub.core.errors import Invalid, Unavailable
from memoryhub.core.stores.store import StoreId

Report = Callable[[int, int], None]


class Every(StrEnum):
    MINUTE = "every minute"
    HOUR = "every hour"
    DAY = "every day"
    DEMAND = "on demand"


class Over(StrEnum):
    PROJECTS = "every project"
    STORES = "every store"
    ALL = "every store and hub.db"
    HUB = "the hub"


# The argument of a job's function: its store and time limit, and a way to report progress.
class Run:
    def __init__(
        self, *, store: StoreId | None = None, seconds: float, on_progress: Report = lambda _done, _total: None
    ) -> None:
        # None for a job of the hub.
        self.store = store
        self._seconds = seconds
        self._on_progress = on_progress
        # On the monotonic clock: when to leave the rest to the next run.
        self.until = time.monotonic() + seconds
        self.done, self.total = 0, 0

    @property
    def over(self) -> bool:
        return time.monotonic() > self.until

    def report(self, done: int, total: int = 0) -> None:
        """Report progress; ``total`` is 0 if it is unknown."""
        self.done, self.total = done, total
        self._on_progress(done, total)

    def require_time(self) -> None:
        """Stop if the time is up, for work that must start again rather than continue.

        Raises:
            Unavailable: the time is up.
        """
        if self.over:
            raise Unavailable(f"it takes longer than its {self._seconds:.0f} s; run it by hand, which has no limit")


# Does the job in the current store or the hub; returns a sentence, or "" if there was nothing to do.
Work = Callable[[Run], str]


@dataclass(frozen=True, slots=True)
class Job:
    # Lower case, words separated by spaces.
    name: str
    # One sentence.
    does: str
    work: Work
    every: Every
    over: Over
    # Time limit in seconds of a scheduled run over one store; a run started by hand has none.
    cap: float
    # Whether the store is opened for the job; otherwise it opens ``run.store`` itself.
    opened: bool = True

    @property
    def slug(self) -> str:
        return self.name.replace(" ", "-")


_jobs: dict[str, Job] = {}


def define_job(
    name: str,
    *,
    does: str,
    work: Work,
    every: Every,
    over: Over = Over.STORES,
    cap: float = 300.0,
    opened: bool = True,
) -> Job:
    """Register a job. It must survive being killed at any point, and continue or start again in the next run.

    Args:
        name: lower case, words separated by spaces: ``expire turns``.
        does: one sentence.
        work: runs in the current store, with ``source="job"`` and the job's name as the actor of its events.
        every: how often the schedule runs it.
        over: the stores that it runs over.
        cap: time limit in seconds per store.
        opened: off if ``work`` opens ``run.store`` itself.
    """
    _jobs[name] = Job(name, does, work, every, over, cap, opened)
    return _jobs[name]


def defined_jobs() -> list[Job]:
    return list(_jobs.values())


def find_job(name: str) -> Job:
    """Return the job with a name or slug.

    Raises:
        Invalid: there is none; the data lists the existing ones.
    """
    found = _jobs.get(name.strip().lower().replace("-", " "))
    if found is None:
        raise Invalid(f"there is no job {name[:64]!r}", choices=[job.slug for job in _jobs.values()])
    return found
