"""How the jobs stand: what the page and the command show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import models

from memories.events import MEMORY_REVISED, MEMORY_WRITTEN
from memories.models import MemoryVersion
from memoryhub.core.events.event_types import EventType
from memoryhub.core.jobs import Every, Job, defined_jobs
from memoryhub.core.stores import rows
from memoryhub.models import JobResult, JobRun
from memoryhub.ops.jobs import runs, schedules
from memoryhub.ops.jobs.locks import Begun
from memoryhub.ops.jobs.planning import NO_PLAN, Plan, plans
from memoryhub.ops.jobs.targets import Target, targets_of
from sessions_app.events import COMMIT_RECORDED, SESSION_STARTED
from sessions_app.events.sessions import TURN_BEGAN
from sessions_app.events.work import ITERATION_STARTED
from sessions_app.models import Commit, Iteration, Session, Turn

_MADE_FROM: dict[type[models.Model], tuple[EventType[Any], ...]] = {
    MemoryVersion: (MEMORY_WRITTEN, MEMORY_REVISED),
    Session: (SESSION_STARTED,),
    Turn: (TURN_BEGAN,),
    Iteration: (ITERATION_STARTED,),
    Commit: (COMMIT_RECORDED,),
}
"""Read models whose rows are, one for one, the events of these types."""


def models_behind() -> dict[str, int]:
    """Return for each read model that lacks its last events, how many it lacks; one that is ahead counts as one."""
    lags = {str(model._meta.model_name): _lag(model) for model in _MADE_FROM}
    return {name: lag for name, lag in lags.items() if lag}


def projection_lag() -> int:
    """Return how many events the furthest read model is behind."""
    return max(models_behind().values(), default=0)


def _lag(model: type[models.Model]) -> int:
    names = [each.name for each in _MADE_FROM[model]]
    of_these = f"event_type IN ({', '.join(['%s'] * len(names))}) AND payload_json IS NOT NULL"
    last = model._default_manager.aggregate(last=models.Max("pk"))["last"] or 0
    missing, known = rows.fetch(
        f"SELECT (SELECT count(*) FROM raw_events WHERE {of_these} AND position > %s), "
        f"EXISTS (SELECT 1 FROM raw_events WHERE {of_these} AND position = %s)",
        [*names, last, *names, last],
    )[0]
    lag: int = missing
    return lag if known or not last else max(lag, 1)


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
class JobStatus:
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


def job_statuses() -> list[JobStatus]:
    """Return how every job stands."""
    jobs = defined_jobs()
    _settle(jobs)
    last, waiting, due = runs.last_runs(), schedules.queued(), plans()
    return [
        JobStatus(job, due.get(job.name, NO_PLAN), [_over(job, target, last, waiting) for target in targets_of(job)])
        for job in jobs
    ]


def status_of_job(job: Job) -> JobStatus:
    """Return how one job stands."""
    return next(each for each in job_statuses() if each.job == job)


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
