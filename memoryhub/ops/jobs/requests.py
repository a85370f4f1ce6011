"""Asking the worker for a run now."""

from __future__ import annotations

from memoryhub.core.errors import Conflict, Invalid, Unavailable
from memoryhub.core.jobs import Job
from memoryhub.ops.jobs import worker
from memoryhub.ops.jobs.schedules import queue_now
from memoryhub.ops.jobs.status import status_of_job
from memoryhub.ops.jobs.targets import Target


def ask_worker(*, job: Job, alias: str | None, asked_by: str) -> str:
    """Queue a run of a job, and say so.

    Args:
        job: which.
        alias: of the store to run it over, "" for the hub itself; None: all that it is made for.
        asked_by: who wants it.

    Raises:
        Invalid: the job is not run over such a store.
        Unavailable: no worker is there to do it; the message says how to have it done all the same.
        Conflict: it is being run or waits to be.
    """
    standing = status_of_job(job)
    wanted = [each for each in standing.stores if alias is None or each.target.alias == alias]
    if not wanted:
        raise Invalid(f"job {job.name!r} is not run over that store" if alias else "there is no store yet")
    if not worker.is_there():
        raise Unavailable(
            f"no worker is running, so nothing was queued: `memory-hub jobs {job.slug}` runs it in a terminal, and "
            "`memory-hub serve` without --no-worker starts a worker"
        )
    idle = [each.target for each in wanted if each.result not in ("running", "queued")]
    if not idle:
        raise Conflict(
            f"{_named(job, [each.target for each in wanted])} is being run, or waits for the worker, already"
        )
    queue_now(job=job, targets=idle, asked_by=asked_by)
    return f"{_named(job, idle)} is queued; the worker runs it within a few seconds."


def _named(job: Job, targets: list[Target]) -> str:
    name = f"{job.name[:1].upper()}{job.name[1:]}"
    return f"{name} of {targets[0].title}" if len(targets) == 1 and targets[0].store else name
