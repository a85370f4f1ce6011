"""When jobs are run by themselves: django-q2's schedules, and what its worker calls.

A schedule that fell due while the hub was off is queued once, however often it was missed, and set to its next time.
The same run may be queued twice all the same (a worker died, or was slow); what ran since it fell due is not run again.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.db import transaction
from django_q.models import OrmQ, Schedule
from django_q.tasks import async_task

from memoryhub.core import clock
from memoryhub.core.jobs import Every, Job, defined_jobs, find_job
from memoryhub.ops.jobs.running import run_due
from memoryhub.ops.jobs.targets import Target, targets_of

FUNCTION = "memoryhub.ops.jobs.run_scheduled"
_TYPES = {Every.MINUTE: Schedule.MINUTES, Every.HOUR: Schedule.HOURLY, Every.DAY: Schedule.DAILY}


# What the queue of a home calls that a version before wrote; the schedules themselves are updated below.
_EARLIER_FUNCTION = "memoryhub.jobs.run_scheduled"


def install_schedules() -> None:
    """Make the schedules that are missing, and remove those of jobs that are no more; others keep their times."""
    with transaction.atomic(using="jobs"):
        jobs = {job.name: job for job in defined_jobs() if job.every in _TYPES}
        known = {each.name: each for each in Schedule.objects.filter(name__in=jobs)}
        Schedule.objects.bulk_create(new_schedule(job) for name, job in jobs.items() if name not in known)
        Schedule.objects.filter(func=FUNCTION).exclude(name__in=jobs).delete()
        older = [each for each in known.values() if each.func != FUNCTION]
        for each in older:
            each.func, each.args, each.intended_date_kwarg = FUNCTION, repr(each.name), "due"
        Schedule.objects.bulk_update(older, ["func", "args", "intended_date_kwarg"])
        _queue_renamed_again()


def _queue_renamed_again() -> None:
    for row in OrmQ.objects.all():
        task: dict[str, Any] = row.task
        if task.get("func") == _EARLIER_FUNCTION:
            row.delete()
            async_task(FUNCTION, *task["args"], **task["kwargs"], group=task["args"][0])


def new_schedule(job: Job) -> Schedule:
    """Return the row of a job that has none yet, as its definition says."""
    return Schedule(
        name=job.name,
        func=FUNCTION,
        args=repr(job.name),
        intended_date_kwarg="due",
        schedule_type=_TYPES[job.every],
        minutes=1 if job.every is Every.MINUTE else None,
    )


def run_scheduled(
    name: str, *, due: str = "", aliases: Sequence[str] | None = None, asked_by: str = "schedule"
) -> dict[str, str]:
    """Run a job of the queue; return what was done, by store. The worker calls it.

    Args:
        name: the job's.
        due: ISO 8601; stores over which it ran since then are left out.
        aliases: of the stores to run it over; default: all that it is made for.
        asked_by: who wants it.
    """
    job = find_job(name)
    targets = [target for target in targets_of(job) if aliases is None or target.alias in aliases]
    fell_due = datetime.fromisoformat(due) if due else clock.now()
    outcomes, left = run_due(job=job, due=fell_due, targets=targets, asked_by=asked_by)
    if left:
        _enqueue(job, left, due=fell_due, asked_by=asked_by)
    return {each.target.title: each.message for each in outcomes if each.message}


def queue_now(*, job: Job, targets: Sequence[Target], asked_by: str) -> None:
    """Ask the worker to run a job over these stores as soon as it is free."""
    _enqueue(job, targets, due=clock.now(), asked_by=asked_by)


def _enqueue(job: Job, targets: Sequence[Target], *, due: datetime, asked_by: str) -> None:
    aliases = [target.alias for target in targets]
    async_task(FUNCTION, job.name, due=due.isoformat(), aliases=aliases, asked_by=asked_by, group=job.name)


def queued() -> dict[str, set[str] | None]:
    """Return the stores for which each job waits in the queue or is being run; None: all of them."""
    waiting: dict[str, set[str] | None] = {}
    for each in OrmQ.objects.all():
        task: dict[str, Any] = each.task
        if task.get("func") != FUNCTION:
            continue
        name, aliases = task["args"][0], task["kwargs"].get("aliases")
        known = waiting.get(name, set())
        waiting[name] = None if aliases is None or known is None else known | set(aliases)
    return waiting


def next_runs() -> dict[str, datetime]:
    """Return when each job is due next, by its name; one that is switched off has no time."""
    return {each.name: each.next_run for each in Schedule.objects.filter(func=FUNCTION).exclude(repeats=0)}


def release_held() -> None:
    """Give back what a worker that died had taken from the queue; else it would wait for an hour."""
    OrmQ.objects.filter(lock__gt=clock.now()).update(lock=clock.now())
