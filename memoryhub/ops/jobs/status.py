"""Status of jobs, read models and the log's chain, and requests for a run."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from django.db import models
from django_q.models import OrmQ, Schedule

from memories.events import MEMORY_REVISED, MEMORY_WRITTEN
from memories.models import MemoryVersion
from memoryhub import env
from memoryhub.core import clock, log
from memoryhub.core.backends.selected import machines
from memoryhub.core.background import running_tasks
from memoryhub.core.disk import file_stamps
from memoryhub.core.errors import ConflictError, HubError, Invalid, Unavailable
from memoryhub.core.events.event_types import EventType
from memoryhub.core.jobs import Every, Job, defined_jobs
from memoryhub.core.log.anchor import read_anchor
from memoryhub.core.stores.store import StoreId, current_store, use_store
from memoryhub.models import JobResult, JobRun, StoreCheck
from memoryhub.ops.jobs.running import (
    Begun,
    JobTarget,
    last_runs,
    lease_name,
    running_since,
    targets_of,
    worker_is_running,
)
from memoryhub.ops.jobs.schedules import NO_PLAN, SchedulePlan, enqueue, plans, queued
from memoryhub.ops.serving.live import LiveSource, stamp_of_files
from sessions_app.events import COMMIT_RECORDED, ITERATION_STARTED, SESSION_STARTED, TURN_BEGAN
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
    behind = {}
    for model, types in _MADE_FROM.items():
        events = log.events().of_type(*types).readable()
        last = model._default_manager.aggregate(last=models.Max("pk"))["last"] or 0
        lag = events.window(after=last).count()
        if not lag and last and not events.filter(position=last).exists():
            lag = 1
        if lag:
            behind[str(model._meta.model_name)] = lag
    return behind


_WORST = (JobResult.FAILED, JobResult.INTERRUPTED, JobResult.OK)


# A job over one store
@dataclass(frozen=True, slots=True)
class OverOne:
    target: JobTarget
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
    plan: SchedulePlan
    stores: list[OverOne] = field(default_factory=list)

    # The worst among the stores
    @property
    def result(self) -> str:
        results = {store.result for store in self.stores}
        return next((str(result) for result in ("running", "queued", *_WORST) if result in results), "never")

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
    last = last_runs()
    waiting = queued()
    due = plans()
    statuses = []
    for job, targets in jobs:
        status = JobStatus(job, due.get(job.name, NO_PLAN))
        aliases = waiting.get(job.name, set())
        for target in targets:
            key = job.name, target.alias
            is_queued = aliases is None or target.alias in aliases
            status.stores.append(OverOne(target, running.get(key), last.get(key), is_queued))
        statuses.append(status)
    return statuses


def status_of_job(job: Job) -> JobStatus:
    return next(status for status in job_statuses() if status.job == job)


# Before the last runs are read, because it records died ones as interrupted (decision 22)
def _running(jobs: list[tuple[Job, list[JobTarget]]]) -> dict[tuple[str, str], Begun]:
    leases = machines.texts()
    begun = {}
    for job, targets in jobs:
        for target in targets:
            if lease_name(job, target) in leases and (now := running_since(job, target)):
                begun[job.name, target.alias] = now
    return begun


def ask_worker(*, job: Job, alias: str | None, asked_by: str) -> str:
    """Queue a run of a job; return a sentence on what was queued. ``alias`` is "" for the hub, None for all targets.

    Raises:
        Invalid: the job does not run over that store.
        Unavailable: no worker is running.
        ConflictError: the job is running or queued.
    """
    status = status_of_job(job)
    chosen = [store for store in status.stores if alias is None or store.target.alias == alias]
    if not chosen and alias:
        raise Invalid(f"job {job.name!r} does not run over that store")
    if not chosen:
        raise Invalid("there is no store yet")
    if not worker_is_running():
        raise Unavailable(
            f"no worker is running, so nothing was queued; run `memory-hub jobs {job.slug}` in a terminal, or start a "
            "worker by `memory-hub serve` without --no-worker"
        )
    idle = [store.target for store in chosen if store.result not in ("running", "queued")]
    if not idle:
        raise ConflictError(f"{_job_title(job, [store.target for store in chosen])} is already running or queued")
    enqueue(job=job, targets=idle, asked_by=asked_by)
    return f"{_job_title(job, idle)} is queued; the worker runs it within a few seconds."


def _job_title(job: Job, targets: list[JobTarget]) -> str:
    name = f"{job.name[:1].upper()}{job.name[1:]}"
    if len(targets) == 1 and targets[0].store:
        return f"{name} of {targets[0].title}"
    return name


# How often a database that other machines use too is queried
_ASK_SECONDS = 1.0


def source_of_jobs() -> LiveSource:
    return LiveSource("jobs", _stamp, jobs_version)


def jobs_version() -> str:
    """Return what changes with every run of a job, its progress, every schedule, and every task."""
    state: object
    if machines.SHARED:
        last = JobRun.objects.aggregate(last=models.Max("pk"))["last"]
        planned = Schedule.objects.order_by("pk").values_list("pk", "schedule_type", "minutes", "repeats", "next_run")
        queue = list(OrmQ.objects.order_by("pk").values_list("pk", flat=True)), list(planned)
        state = last, queue, sorted(machines.texts().items())
    else:
        state = file_stamps(_job_files())
    tasks = [(task.id, task.version) for task in running_tasks()]
    return hashlib.sha256(repr((state, tasks)).encode()).hexdigest()[:16]


def _stamp() -> object:
    changed = time.monotonic() // _ASK_SECONDS if machines.SHARED else stamp_of_files(_job_files())
    return changed, [task.version for task in running_tasks()]


def _job_files() -> Iterator[Path]:
    home = env.home()
    yield from (home / name for name in ("hub.db", "hub.db-wal", "jobs.db", "jobs.db-wal"))
    yield from sorted((home / "locks").glob("*"))


# Read without walking the chain
@dataclass(frozen=True, slots=True)
class ChainState:
    position: int
    digest: str
    # Position of the anchor; None if missing or unreadable
    anchored: int | None
    anchor_problem: str
    # The last full verification
    check: StoreCheck | None

    @property
    def unchecked(self) -> int:
        checked = self.check.events if self.check else 0
        return max(0, self.position - checked)


def chain_state() -> ChainState:
    store = current_store()
    try:
        anchor = read_anchor(store)
    except ValueError:
        anchor = None
    check = StoreCheck.objects.filter(store=store.alias).first()
    return ChainState(*log.head(), anchor.position if anchor else None, log.anchor_problem(), check)


def check_chain() -> StoreCheck:
    verification = log.verify()
    values = {
        "checked_at": clock.now(),
        "ok": verification.ok,
        "events": verification.events,
        "finding": verification.describe(),
    }
    return StoreCheck.objects.update_or_create(store=current_store().alias, defaults=values)[0]


def check_store(store: StoreId) -> StoreCheck:
    try:
        with use_store(store):
            return check_chain()
    except HubError as error:
        unread = {"checked_at": clock.now(), "ok": False, "events": 0, "finding": error.message}
        return StoreCheck.objects.update_or_create(store=store.alias, defaults=unread)[0]
