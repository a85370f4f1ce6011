"""Finished runs in hub.db."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Count, Max, Q
from django_q.models import Schedule

from memoryhub.core import clock
from memoryhub.core.jobs import Job
from memoryhub.models import JobResult, JobRun
from memoryhub.ops.jobs import locks
from memoryhub.ops.jobs.locks import Begun
from memoryhub.ops.jobs.targets import Target

# Runs to keep per job and store; of idle runs only the last is kept (decision 22)
KEPT = 20
ATTEMPTS = 3
_MESSAGE = 2000
_SEEN_AFTER = timedelta(hours=12)


@dataclass(frozen=True, slots=True)
class Outcome:
    target: Target
    # A ``JobResult``, or "busy" if another run was going on
    result: str
    message: str
    begun: Begun

    @property
    def idle(self) -> bool:
        return self.result == JobResult.OK and not self.message

    @property
    def well(self) -> bool:
        return self.result == JobResult.OK


def keep(job: Job, outcome: Outcome) -> None:
    with transaction.atomic():
        _row(job, outcome).save()
        runs = JobRun.objects.filter(job=job.name, store=outcome.target.alias, idle=False)
        # By their order: a run of a time when the clock was ahead must not outlast later ones
        JobRun.objects.filter(pk__in=list(runs.order_by("-pk").values_list("pk", flat=True)[KEPT:])).delete()


# One transaction for all stores: idle runs are frequent (decision 22)
def keep_idle(job: Job, outcomes: Iterable[Outcome]) -> None:
    rows = [_row(job, outcome) for outcome in outcomes]
    if rows:
        with transaction.atomic():
            JobRun.objects.filter(job=job.name, idle=True, store__in=[row.store for row in rows]).delete()
            JobRun.objects.bulk_create(rows)


def _row(job: Job, outcome: Outcome) -> JobRun:
    begun = outcome.begun
    return JobRun(
        job=job.name,
        store=outcome.target.alias,
        started_at=begun.started_at,
        ended_at=clock.now(),
        result=outcome.result,
        done=begun.done,
        total=begun.total,
        message=outcome.message[:_MESSAGE],
        pid=begun.pid,
        asked_by=begun.asked_by,
        idle=outcome.idle,
    )


def keep_interrupted(job: Job, target: Target, begun: Begun) -> None:
    recorded = JobRun.objects.filter(job=job.name, store=target.alias, started_at=begun.started_at, pid=begun.pid)
    if not recorded.exists():
        keep(job, Outcome(target, JobResult.INTERRUPTED, "its process ended during the run", begun))


def running(job: Job, target: Target) -> Begun | None:
    with locks.look(job, target) as (now, dead):
        if dead:
            keep_interrupted(job, target, dead)
        return now


# Stores that ran well since the job was due, or where it was interrupted three times since
def done_since(job: Job, due: datetime) -> set[str]:
    since = JobRun.objects.filter(job=job.name, started_at__range=(due, clock.now())).values("store")
    counted = since.annotate(
        well=Count("pk", filter=Q(result=JobResult.OK)), cut=Count("pk", filter=Q(result=JobResult.INTERRUPTED))
    )
    return {row["store"] for row in counted if row["well"] or row["cut"] >= ATTEMPTS}


def seen_at(job: Job, target: Target) -> datetime | None:
    """Return when the job last ran over the store, at least half a day or half its interval ago, or None.

    Runs of a time when the clock was ahead do not count.
    """
    latest = clock.now() - min(_SEEN_AFTER, _interval(job) / 2)
    earlier = JobRun.objects.filter(job=job.name, store=target.alias, started_at__lte=latest)
    newest: datetime | None = earlier.aggregate(newest=Max("started_at"))["newest"]
    return newest


# Only the last run that found nothing to do is stored, so a job that runs every hour cannot look back half a day
def _interval(job: Job) -> timedelta:
    schedule = Schedule.objects.filter(name=job.name).first()
    if schedule is None:
        return timedelta(days=1)
    interval: timedelta = schedule.calculate_next_run(schedule.next_run) - schedule.next_run
    return interval


# By job and store
def last_runs() -> dict[tuple[str, str], JobRun]:
    newest = JobRun.objects.values("job", "store").annotate(newest=Max("pk")).values("newest")
    return {(run.job, run.store): run for run in JobRun.objects.filter(pk__in=newest)}
