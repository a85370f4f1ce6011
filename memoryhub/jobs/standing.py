"""How the jobs stand: what the page and the command show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from memoryhub.core.jobs import Every, Job, defined_jobs
from memoryhub.jobs import runs, schedules
from memoryhub.jobs.locks import Begun
from memoryhub.jobs.places import Target, targets_of
from memoryhub.jobs.planning import NO_PLAN, Plan, plans
from memoryhub.models import JobResult, JobRun

_WORST = (JobResult.FAILED, JobResult.INTERRUPTED, JobResult.OK)


@dataclass(frozen=True, slots=True)
class OverOne:
    """A job over one store."""

    target: Target
    now: Begun | None
    """The run that goes on."""
    last: JobRun | None
    queued: bool

    @property
    def result(self) -> str:
        """``running``, ``queued``, how the last run ended, or ``never``."""
        if self.now:
            return "running"
        if self.queued:
            return "queued"
        return self.last.result if self.last else "never"


@dataclass(frozen=True, slots=True)
class Standing:
    """A job over all of its stores."""

    job: Job
    plan: Plan
    stores: list[OverOne] = field(default_factory=list)

    @property
    def result(self) -> str:
        """That of the store that needs looking at most."""
        found = {each.result for each in self.stores}
        return next((str(each) for each in ("running", "queued", *_WORST) if each in found), "never")

    @property
    def last(self) -> JobRun | None:
        """The run that ended last."""
        return max(filter(None, (each.last for each in self.stores)), key=lambda run: run.ended_at, default=None)

    @property
    def now(self) -> Begun | None:
        """The run that goes on, if any."""
        return next((each.now for each in self.stores if each.now), None)

    @property
    def failures(self) -> list[OverOne]:
        """The stores over which the last run did not end well."""
        return [each for each in self.stores if each.last and each.last.result != JobResult.OK and not each.now]

    @property
    def next_run(self) -> datetime | None:
        """When it is due next; None where it is switched off or run on demand alone."""
        return self.plan.next_run

    @property
    def is_off(self) -> bool:
        """Whether it should be run by itself and somebody has switched that off."""
        return self.next_run is None and self.job.every is not Every.DEMAND

    @property
    def runs(self) -> str:
        """How often it is run by itself, and at what time; by its definition where it is switched off."""
        return self.plan.described if self.next_run else self.job.every.value


def standings() -> list[Standing]:
    """Return how every job stands."""
    jobs = defined_jobs()
    _settle(jobs)
    last, waiting, due = runs.last_runs(), schedules.queued(), plans()
    return [
        Standing(job, due.get(job.name, NO_PLAN), [_over(job, target, last, waiting) for target in targets_of(job)])
        for job in jobs
    ]


def standing_of(job: Job) -> Standing:
    """Return how one job stands."""
    return next(each for each in standings() if each.job == job)


def _settle(jobs: list[Job]) -> None:
    """Write down who died before the last runs are read."""
    for job in jobs:
        for target in targets_of(job):
            runs.running(job, target)


def _over(
    job: Job, target: Target, last: Mapping[tuple[str, str], JobRun], waiting: Mapping[str, set[str] | None]
) -> OverOne:
    aliases = waiting.get(job.name, set())
    queued = aliases is None or target.alias in aliases
    return OverOne(target, runs.running(job, target), last.get((job.name, target.alias)), queued)
