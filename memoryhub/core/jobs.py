"""What a job is: the one table from which the schedule, the page, the command and the documents come.

Each app may have a ``jobs.py`` that defines its own with ``define_job``; the hub loads them all by that name.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from memoryhub.core.errors import Invalid, Unavailable
from memoryhub.core.stores.store import StoreId

Report = Callable[[int, int], None]


class Every(StrEnum):
    """How often a job is run by itself."""

    MINUTE = "every minute"
    HOUR = "every hour"
    DAY = "every day"
    DEMAND = "on demand"


class Over(StrEnum):
    """What a job is run over, one by one."""

    PROJECTS = "every project"
    STORES = "every store"
    ALL = "every store and hub.db"
    HUB = "the hub"


class Run:
    """What a job's function is given: its time, and a way to say how far it is."""

    def __init__(
        self, *, store: StoreId | None = None, seconds: float, told: Report = lambda _done, _total: None
    ) -> None:
        self.store = store
        """What it is run over; None: the hub."""
        self._seconds = seconds
        self._told = told
        self.until = time.monotonic() + seconds
        """On the monotonic clock: when to leave what is not done yet to the next run."""
        self.done, self.total = 0, 0

    @property
    def over(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() > self.until

    def report(self, done: int, total: int = 0) -> None:
        """Say how far it is; ``total`` 0 where nobody knows how much there is."""
        self.done, self.total = done, total
        self._told(done, total)

    def require_time(self) -> None:
        """Give up where the time is up. For work that cannot be left half done, and is begun anew instead.

        Raises:
            Unavailable: it is.
        """
        if self.over:
            raise Unavailable(f"it takes longer than its {self._seconds:.0f} s; run it by hand, which has no limit")


Work = Callable[[Run], str]
"""Does the job in the current store, or the hub; returns what was done as a sentence, "" where there was nothing."""


@dataclass(frozen=True, slots=True)
class Job:
    """One job."""

    name: str
    """Lower case, words apart."""
    does: str
    """What it does, in one sentence."""
    work: Work
    every: Every
    over: Over
    cap: float
    """Seconds that one run over one store may take by schedule; by hand there is no limit."""
    opened: bool = True
    """Whether the store is opened for it; else it opens ``run.store`` itself, and says what keeps it from doing so."""

    @property
    def slug(self) -> str:
        """The name where no space may be."""
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
    """Register a job. It must bear being killed at any point, and go on or begin anew when it is run again.

    Args:
        name: lower case, words apart: ``expire turns``.
        does: one sentence.
        work: does it in the current store, with ``source="job"`` and the job's name as the actor of its events.
        every: how often the schedule runs it.
        over: what it is run over.
        cap: seconds that one run over one store may take.
        opened: off where ``work`` opens ``run.store`` itself.
    """
    _jobs[name] = Job(name, does, work, every, over, cap, opened)
    return _jobs[name]


def defined_jobs() -> list[Job]:
    """Return every job, in the order of their definition."""
    return list(_jobs.values())


def find_job(name: str) -> Job:
    """Return the job of a name, or of a slug.

    Raises:
        Invalid: there is none; the data names the known ones.
    """
    found = _jobs.get(name.strip().lower().replace("-", " "))
    if found is None:
        raise Invalid(f"there is no job {name[:64]!r}", choices=[job.slug for job in _jobs.values()])
    return found
