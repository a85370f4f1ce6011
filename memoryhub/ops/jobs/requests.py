from __future__ import annotations

from memoryhub.core.errors import Conflict, Invalid, Unavailable
from memoryhub.core.jobs import Job
from memoryhub.ops.jobs.locks import worker_is_running
from memoryhub.ops.jobs.schedules import queue_now
from memoryhub.ops.jobs.status import status_of_job
from memoryhub.ops.jobs.targets import Target


def ask_worker(*, job: Job, alias: str | None, asked_by: str) -> str:
    """Queue a run of a job; return a sentence on what was queued.

    Args:
        job: the job.
        alias: of the store, "" for the hub itself, None for all targets.
        asked_by: shown with the run.

    Raises:
        Invalid: the job does not run over that store.
        Unavailable: no worker is running.
        Conflict: the job is running or queued.
    """
    status = status_of_job(job)
    wanted = [store for store in status.stores if alias is None or store.target.alias == alias]
    if not wanted:
        raise Invalid(f"job {job.name!r} does not run over that store" if alias else "there is no store yet")
    if not worker_is_running():
        raise Unavailable(
            f"no worker is running, so nothing was queued; run `memory-hub jobs {job.slug}` in a terminal, or start a "
            "worker by `memory-hub serve` without --no-worker"
        )
    idle = [store.target for store in wanted if store.result not in ("running", "queued")]
    if not idle:
        raise Conflict(f"{_named(job, [store.target for store in wanted])} is already running or queued")
    queue_now(job=job, targets=idle, asked_by=asked_by)
    return f"{_named(job, idle)} is queued; the worker runs it within a few seconds."


def _named(job: Job, targets: list[Target]) -> str:
    name = f"{job.name[:1].upper()}{job.name[1:]}"
    return f"{name} of {targets[0].title}" if len(targets) == 1 and targets[0].store else name
