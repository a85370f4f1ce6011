"""Schedules in django-q2, and the function that its worker calls."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.db import transaction
from django_q.models import OrmQ, Schedule
from django_q.tasks import async_task

from memoryhub.core import clock
from memoryhub.core.backends.selected import machines
from memoryhub.core.jobs import Every, Job, defined_jobs, find_job
from memoryhub.ops.jobs.running import run_due
from memoryhub.ops.jobs.targets import Target, targets_of

logger = logging.getLogger(__name__)

FUNCTION = "memoryhub.ops.jobs.run_scheduled"
# Who asked for a run that was due
SCHEDULE = "schedule"
# How often a machine looks for jobs over the files of its own home
_LOOK_SECONDS = 30.0
_TYPES = {Every.MINUTE: Schedule.MINUTES, Every.HOUR: Schedule.HOURLY, Every.DAY: Schedule.DAILY}


# The function in queued tasks of an earlier version; schedules are updated below
_EARLIER_FUNCTION = "memoryhub.jobs.run_scheduled"


# Without ``catch_up``: a schedule that was missed several times is queued once (decision 22)
def install_schedules() -> None:
    with transaction.atomic(using="jobs"):
        jobs = {job.name: job for job in defined_jobs() if job.every in _TYPES}
        existing = {schedule.name: schedule for schedule in Schedule.objects.filter(name__in=jobs)}
        Schedule.objects.bulk_create(new_schedule(job) for name, job in jobs.items() if name not in existing)
        Schedule.objects.filter(func=FUNCTION).exclude(name__in=jobs).delete()
        older = [schedule for schedule in existing.values() if schedule.func != FUNCTION]
        for schedule in older:
            schedule.func, schedule.args, schedule.intended_date_kwarg = FUNCTION, repr(schedule.name), "due"
        Schedule.objects.bulk_update(older, ["func", "args", "intended_date_kwarg"])
        _queue_renamed_again()


def _queue_renamed_again() -> None:
    for row in OrmQ.objects.all():
        task: dict[str, Any] = row.task
        if task.get("func") == _EARLIER_FUNCTION:
            row.delete()
            async_task(FUNCTION, *task["args"], **task["kwargs"], group=task["args"][0])


def new_schedule(job: Job) -> Schedule:
    return Schedule(
        name=job.name,
        func=FUNCTION,
        args=repr(job.name),
        intended_date_kwarg="due",
        schedule_type=_TYPES[job.every],
        minutes=1 if job.every is Every.MINUTE else None,
    )


def run_scheduled(
    name: str, *, due: str = "", aliases: Sequence[str] | None = None, asked_by: str = SCHEDULE
) -> dict[str, str]:
    """Run a queued job; return the messages by store. The worker calls this.

    Args:
        name: of the job.
        due: ISO 8601; stores over which the job ran since then are skipped.
        aliases: of the stores; default: all targets of the job.
        asked_by: shown with the runs.
    """
    job = find_job(name)
    if job.of_machine and machines.SHARED and asked_by == SCHEDULE:
        return {}  # every worker runs it for its own machine
    targets = [target for target in targets_of(job) if aliases is None or target.alias in aliases]
    fell_due = datetime.fromisoformat(due) if due else clock.now()
    outcomes, left = run_due(job=job, due=fell_due, targets=targets, asked_by=asked_by)
    if left:
        _enqueue(job, left, due=fell_due, asked_by=asked_by)
    return {outcome.target.title: outcome.message for outcome in outcomes if outcome.message}


def queue_now(*, job: Job, targets: Sequence[Target], asked_by: str) -> None:
    _enqueue(job, targets, due=clock.now(), asked_by=asked_by)


def _enqueue(job: Job, targets: Sequence[Target], *, due: datetime, asked_by: str) -> None:
    aliases = [target.alias for target in targets]
    async_task(FUNCTION, job.name, due=due.isoformat(), aliases=aliases, asked_by=asked_by, group=job.name)


# Aliases of the stores with a queued run, by job; None: all stores
def queued() -> dict[str, set[str] | None]:
    waiting: dict[str, set[str] | None] = {}
    for row in OrmQ.objects.all():
        task: dict[str, Any] = row.task
        if task.get("func") != FUNCTION:
            continue
        name, aliases = task["args"][0], task["kwargs"].get("aliases")
        known = waiting.get(name, set())
        waiting[name] = None if aliases is None or known is None else known | set(aliases)
    return waiting


def next_runs() -> dict[str, datetime]:
    return {schedule.name: schedule.next_run for schedule in Schedule.objects.filter(func=FUNCTION).exclude(repeats=0)}


def state_of_queue() -> object:
    planned = Schedule.objects.order_by("pk").values_list("pk", "schedule_type", "minutes", "repeats", "next_run")
    return list(OrmQ.objects.order_by("pk").values_list("pk", flat=True)), list(planned)


# Otherwise tasks taken by a worker that died would wait for an hour (decision 22)
def release_held() -> None:
    OrmQ.objects.filter(lock__gt=clock.now()).update(lock=clock.now())


def run_machine_jobs(stop: threading.Event) -> None:
    """Run the jobs over files of the home, which each machine runs itself, as they fall due, until ``stop`` is set."""
    seen = dict.fromkeys(job.name for job in defined_jobs())
    while True:
        try:
            planned = next_runs()
            for job in defined_jobs():
                if job.of_machine and planned.get(job.name) not in (None, seen.get(job.name)):
                    run_due(job=job, due=None, asked_by=SCHEDULE)
            seen = dict(planned)
        except Exception:
            logger.exception("the jobs of this machine could not be run; retrying")
        if stop.wait(_LOOK_SECONDS):
            return
