"""Finished runs in hub.db."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction
from django.db.models import Count, Max, Q

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
        JobRun.objects.filter(pk__in=list(runs.order_by("-started_at").values_list("pk", flat=True)[KEPT:])).delete()


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
    since = JobRun.objects.filter(job=job.name, started_at__gte=due).values("store")
    counted = since.annotate(
        well=Count("pk", filter=Q(result=JobResult.OK)), cut=Count("pk", filter=Q(result=JobResult.INTERRUPTED))
    )
    return {row["store"] for row in counted if row["well"] or row["cut"] >= ATTEMPTS}


# By job and store
def last_runs() -> dict[tuple[str, str], JobRun]:
    newest = JobRun.objects.values("job", "store").annotate(newest=Max("pk")).values("newest")
    return {(run.job, run.store): run for run in JobRun.objects.filter(pk__in=newest)}
