"""Background jobs: each app's ``jobs.py`` declares its own with ``define_job``."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import cached_property

from memoryhub.core.errors import Invalid, Unavailable
from memoryhub.core.stores.store import StoreId
from memoryhub.core.text import did_you_mean

Report = Callable[[int, int], None]


class Every(StrEnum):
    MINUTE = "every minute"
    HOUR = "every hour"
    DAY = "every day"
    DEMAND = "on demand"


class Over(StrEnum):
    PROJECTS = "every project"
    STORES = "every store"
    ALL = "every store and the hub"
    HUB = "the hub"


# The argument of a job's function: its store and time limit, and a way to report progress.
class Run:
    def __init__(
        self,
        *,
        store: StoreId | None = None,
        seconds: float,
        seen_at: Callable[[], datetime | None] = lambda: None,
        on_progress: Report = lambda _steps, _total: None,
    ) -> None:
        # None for a job of the hub.
        self.store = store
        self._seen_at = seen_at
        self._seconds = seconds
        self._on_progress = on_progress
        # On the monotonic clock: when to leave the rest to the next run.
        self.until = time.monotonic() + seconds
        self.steps = 0
        self.total = 0

    @cached_property
    def ages_until(self) -> datetime | None:
        """Until when a job that deletes by age may count ages: its run before, at least half a day ago.

        A clock that is ahead for less than that deletes nothing. None at the first run: delete nothing yet.
        """
        return self._seen_at()

    @property
    def over(self) -> bool:
        return time.monotonic() > self.until

    def report(self, steps: int, total: int = 0) -> None:
        self.steps = steps
        self.total = total
        self._on_progress(steps, total)

    def require_time(self) -> None:
        """Stop if the time is up, for work that must start again rather than continue."""
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
    # Whether it is about files of the home folder, so that each of a hub's machines runs it for itself
    of_machine: bool = False
    # Whether there is something to do in the current store: a scheduled run that would find nothing is not queued
    has_work: Callable[[], bool] | None = None

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
    of_machine: bool = False,
    has_work: Callable[[], bool] | None = None,
) -> Job:
    """Register a job, a function that must survive being killed at any point, and then continue or start again."""
    _jobs[name] = Job(name, does, work, every, over, cap, opened, of_machine, has_work)
    return _jobs[name]


def defined_jobs() -> list[Job]:
    return list(_jobs.values())


def find_job(name: str) -> Job:
    job = _jobs.get(name.strip().lower().replace("-", " "))
    if job is None:
        slugs = [defined.slug for defined in _jobs.values()]
        raise Invalid(f"there is no job {name[:64]!r}{did_you_mean(name, slugs)}", choices=slugs)
    return job
