"""The runs that are over, in hub.db: kept, pruned, and told."""

from __future__ import annotations

import os
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

KEPT = 20
"""Runs of one job over one store that did something; of those that found nothing to do the last is kept."""
ATTEMPTS = 3
_MESSAGE = 2000


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run over one store ended."""

    target: Target
    result: str
    """Of ``JobResult``, or "busy" where another run is at it and nothing was done."""
    message: str
    begun: Begun

    @property
    def idle(self) -> bool:
        """Whether there was nothing to do."""
        return self.result == JobResult.OK and not self.message

    @property
    def well(self) -> bool:
        """Whether it did what it was to do."""
        return self.result == JobResult.OK


def keep(job: Job, outcome: Outcome) -> None:
    """Keep how a run ended, and let go of the oldest."""
    with transaction.atomic():
        _row(job, outcome).save()
        runs = JobRun.objects.filter(job=job.name, store=outcome.target.alias, idle=False)
        JobRun.objects.filter(pk__in=list(runs.order_by("-started_at").values_list("pk", flat=True)[KEPT:])).delete()


def keep_idle(job: Job, outcomes: Iterable[Outcome]) -> None:
    """Keep that there was nothing to do, for many stores at once: the last time is all that is kept of it."""
    rows = [_row(job, each) for each in outcomes]
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
    """Keep that a run's process died; nothing where it had ended before."""
    known = JobRun.objects.filter(job=job.name, store=target.alias, started_at=begun.started_at, pid=begun.pid)
    if not known.exists():
        keep(job, Outcome(target, JobResult.INTERRUPTED, "its process ended before it did", begun))


def running(job: Job, target: Target) -> Begun | None:
    """Return the run that goes on now, if any; one that died is kept as interrupted."""
    with locks.look(job, target) as (now, dead):
        if dead:
            keep_interrupted(job, target, dead)
        return now


def done_since(job: Job, due: datetime) -> set[str]:
    """Return the stores over which a job that was due then needs no run any more.

    A run that began later has done it; and what died three times since is left alone until it is due again.
    """
    since = JobRun.objects.filter(job=job.name, started_at__gte=due).values("store")
    counted = since.annotate(
        well=Count("pk", filter=Q(result=JobResult.OK)), cut=Count("pk", filter=Q(result=JobResult.INTERRUPTED))
    )
    return {row["store"] for row in counted if row["well"] or row["cut"] >= ATTEMPTS}


def last_runs() -> dict[tuple[str, str], JobRun]:
    """Return the last run of each job over each store."""
    newest = JobRun.objects.values("job", "store").annotate(newest=Max("pk")).values("newest")
    return {(run.job, run.store): run for run in JobRun.objects.filter(pk__in=newest)}


def begun_now(asked_by: str) -> Begun:
    """Return a run of this process that begins now."""
    return Begun(os.getpid(), clock.to_text(clock.now()), asked_by)
