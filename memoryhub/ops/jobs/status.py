"""Status of jobs and read models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import models

from memories.events import MEMORY_REVISED, MEMORY_WRITTEN
from memories.models import MemoryVersion
from memoryhub.core.backends.selected import machines
from memoryhub.core.events.event_types import EventType
from memoryhub.core.jobs import Every, Job, defined_jobs
from memoryhub.core.stores import rows
from memoryhub.models import JobResult, JobRun
from memoryhub.ops.jobs import locks, runs, schedules
from memoryhub.ops.jobs.locks import Begun
from memoryhub.ops.jobs.planning import NO_PLAN, Plan, plans
from memoryhub.ops.jobs.targets import Target, targets_of
from sessions_app.events import COMMIT_RECORDED, SESSION_STARTED
from sessions_app.events.sessions import TURN_BEGAN
from sessions_app.events.work import ITERATION_STARTED
from sessions_app.models import Commit, Iteration, Session, Turn

# Read models with exactly one row per event of these types
_MADE_FROM: dict[type[models.Model], tuple[EventType[Any], ...]] = {
    MemoryVersion: (MEMORY_WRITTEN, MEMORY_REVISED),
    Session: (SESSION_STARTED,),
    Turn: (TURN_BEGAN,),
    Iteration: (ITERATION_STARTED,),
    Commit: (COMMIT_RECORDED,),
}


# Missing events by read model; one that is ahead counts as one
def models_behind() -> dict[str, int]:
    lags = {str(model._meta.model_name): _lag(model) for model in _MADE_FROM}
    return {name: lag for name, lag in lags.items() if lag}


def projection_lag() -> int:
    return max(models_behind().values(), default=0)


def _lag(model: type[models.Model]) -> int:
    names = [event_type.name for event_type in _MADE_FROM[model]]
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


# A job over one store
@dataclass(frozen=True, slots=True)
class OverOne:
    target: Target
    now: Begun | None
    last: JobRun | None
    queued: bool

    @property
    def result(self) -> str:
        if self.now:
            return "running"
        if self.queued:
            return "queued"
        return self.last.result if self.last else "never"


# A job over all of its stores
@dataclass(frozen=True, slots=True)
class JobStatus:
    job: Job
    plan: Plan
    stores: list[OverOne] = field(default_factory=list)

    # The worst among the stores
    @property
    def result(self) -> str:
        found = {store.result for store in self.stores}
        return next((str(result) for result in ("running", "queued", *_WORST) if result in found), "never")

    @property
    def last(self) -> JobRun | None:
        return max(filter(None, (store.last for store in self.stores)), key=lambda run: run.ended_at, default=None)

    @property
    def now(self) -> Begun | None:
        return next((store.now for store in self.stores if store.now), None)

    @property
    def failures(self) -> list[OverOne]:
        return [store for store in self.stores if store.last and store.last.result != JobResult.OK and not store.now]

    # None if off or on demand
    @property
    def next_run(self) -> datetime | None:
        return self.plan.next_run

    @property
    def is_off(self) -> bool:
        return self.next_run is None and self.job.every is not Every.DEMAND

    @property
    def runs(self) -> str:
        return self.plan.described if self.next_run else self.job.every.value


def job_statuses() -> list[JobStatus]:
    jobs = [(job, targets_of(job)) for job in defined_jobs()]
    running = _running(jobs)
    last, waiting, due = runs.last_runs(), schedules.queued(), plans()
    return [
        JobStatus(job, due.get(job.name, NO_PLAN), [_over(job, target, running, last, waiting) for target in targets])
        for job, targets in jobs
    ]


def state_of_jobs() -> object:
    """Return what differs after every run of a job, its progress, and every change of the queue and the schedules."""
    last = JobRun.objects.aggregate(last=models.Max("pk"))["last"]
    return last, schedules.state_of_queue(), sorted(machines.texts().items())


def status_of_job(job: Job) -> JobStatus:
    return next(status for status in job_statuses() if status.job == job)


# Before the last runs are read, because it records died ones as interrupted (decision 22)
def _running(jobs: list[tuple[Job, list[Target]]]) -> dict[tuple[str, str], Begun]:
    known = machines.texts()
    found = {}
    for job, targets in jobs:
        for target in targets:
            if locks.name_of(job, target) in known and (now := runs.running(job, target)):
                found[job.name, target.alias] = now
    return found


def _over(
    job: Job,
    target: Target,
    running: Mapping[tuple[str, str], Begun],
    last: Mapping[tuple[str, str], JobRun],
    waiting: Mapping[str, set[str] | None],
) -> OverOne:
    aliases = waiting.get(job.name, set())
    queued = aliases is None or target.alias in aliases
    return OverOne(target, running.get((job.name, target.alias)), last.get((job.name, target.alias)), queued)
