"""Run jobs, store by store, one run at a time per store, and record the results."""

from __future__ import annotations

import json
import logging
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from django.db import transaction
from django.db.models import Count, Max, Q
from django_q.models import Schedule

from memoryhub import env
from memoryhub.core import clock
from memoryhub.core.backends.base import Lease
from memoryhub.core.backends.selected import machines
from memoryhub.core.errors import HubError, Locked
from memoryhub.core.jobs import Job, Over, Run
from memoryhub.core.origin import use_origin
from memoryhub.core.stores.store import Scope, StoreId, list_projects, list_shared, project_store, use_store
from memoryhub.models import JobResult, JobRun

_TITLES = {Scope.PROJECT: "project {}", Scope.ORG: "organisation {}", Scope.GLOBAL: "the global scope"}


# One store, or the hub if None
@dataclass(frozen=True, slots=True)
class JobTarget:
    store: StoreId | None = None

    # The key of its runs; "" for the hub
    @property
    def alias(self) -> str:
        return self.store.alias if self.store else ""

    # For file names, such as project-alpha
    @property
    def key(self) -> str:
        return f"{self.store.scope}-{self.store.name}" if self.store else "hub"

    @property
    def title(self) -> str:
        return _TITLES[self.store.scope].format(self.store.name) if self.store else "the hub"


HUB = JobTarget()


def targets_of(job: Job) -> list[JobTarget]:
    if job.over is Over.HUB:
        return [HUB]
    targets = [JobTarget(project_store(project)) for project in list_projects()]
    if job.over is not Over.PROJECTS:
        targets += map(JobTarget, list_shared())
    if job.over is Over.ALL:
        targets.append(HUB)
    return targets


def all_stores() -> list[StoreId]:
    return [*map(project_store, list_projects()), *list_shared()]


logger = logging.getLogger(__name__)

BUSY = "busy"
# After so many seconds, the remaining stores are left to another pass
PASS_SECONDS = 900.0

Watch = Callable[[JobTarget, int, int], None]


class JobPass:
    def __init__(self, job: Job, *, asked_by: str, capped: bool, watch: Watch = lambda *_: None) -> None:
        self._job = job
        self._asked_by = asked_by
        self._capped = capped
        self._watch = watch
        # Stores left for another pass
        self.remaining: list[JobTarget] = []

    def over(self, targets: Sequence[JobTarget]) -> list[RunOutcome]:
        ends = time.monotonic() + PASS_SECONDS
        outcomes: list[RunOutcome] = []
        for number, target in enumerate(targets):
            if self._capped and time.monotonic() > ends:
                self.remaining = list(targets[number:])
                break
            outcomes.append(self._run(target))
        idle = [_job_run(self._job, outcome) for outcome in outcomes if outcome.idle]
        # One transaction for all stores: idle runs are frequent (decision 22)
        if idle:
            with transaction.atomic():
                JobRun.objects.filter(job=self._job.name, idle=True, store__in=[run.store for run in idle]).delete()
                JobRun.objects.bulk_create(idle)
        return outcomes

    def _run(self, target: JobTarget) -> RunOutcome:
        try:
            with hold_lease(self._job, target, asked_by=self._asked_by) as held:
                if held.left_by:
                    record_interrupted(self._job, target, held.left_by)
                held.report(0, 0)
                self._watch(target, 0, 0)
                return self._recorded(target, held)
        except Locked as error:
            return RunOutcome(target, BUSY, error.message, begun_now(self._asked_by))

    def _recorded(self, target: JobTarget, held: HeldLease) -> RunOutcome:
        result = JobResult.FAILED
        try:
            message = self._work(target, held)
            result = JobResult.OK
        except HubError as error:
            logger.warning("job %s of %s: %s", self._job.name, target.title, error)
            message = error.message
        except Exception as error:
            logger.exception("job %s of %s failed", self._job.name, target.title)
            message = f"{type(error).__name__}: {error}"
        except BaseException:
            record_run(self._job, RunOutcome(target, JobResult.INTERRUPTED, "stopped", held.begun))
            raise
        outcome = RunOutcome(target, result, message, held.begun)
        if not outcome.idle:
            record_run(self._job, outcome)
        return outcome

    def _work(self, target: JobTarget, held: HeldLease) -> str:
        def report(count: int, total: int) -> None:
            held.report(count, total)
            self._watch(target, count, total)

        with ExitStack() as stack:
            if target.store and self._job.opened:
                stack.enter_context(use_store(target.store))
            stack.enter_context(use_origin(source="job", actor=self._job.name))
            # Its time begins when the store is open: that may have waited for a migration
            run = Run(
                store=target.store,
                seconds=self._job.cap if self._capped else math.inf,
                seen_at=partial(seen_at, self._job, target),
                on_progress=report,
            )
            return self._job.work(run)


def run_job(
    *, job: Job, targets: Sequence[JobTarget] | None = None, asked_by: str, watch: Watch = lambda *_: None
) -> list[RunOutcome]:
    """Run a job now, in this process, without a time limit; ``watch`` is called with each target and its progress."""
    if targets is None:
        targets = targets_of(job)
    return JobPass(job, asked_by=asked_by, capped=False, watch=watch).over(targets)


def run_due(
    *, job: Job, due: datetime | None, targets: Sequence[JobTarget] | None = None, asked_by: str
) -> tuple[list[RunOutcome], list[JobTarget]]:
    """Run a job that is due, within its time limits; return the outcomes and the stores left for another pass.

    Skips stores over which it ran since ``due``, so missed or repeated requests cause one run.
    """
    due_targets = list(targets_of(job) if targets is None else targets)
    if due is not None:
        for target in due_targets:
            running_since(job, target)  # records died runs as interrupted before they are counted
        finished = done_since(job, due)
        due_targets = [target for target in due_targets if target.alias not in finished]
    job_pass = JobPass(job, asked_by=asked_by, capped=True)
    return job_pass.over(due_targets), job_pass.remaining


_WORKER = "worker"


@dataclass(frozen=True, slots=True)
class Begun:
    pid: int
    # ISO 8601, UTC
    started: str
    asked_by: str
    done: int = 0
    total: int = 0

    @property
    def started_at(self) -> datetime:
        return clock.from_text(self.started)


class HeldLease:
    def __init__(self, lease: Lease, begun: Begun) -> None:
        self._lease = lease
        self.begun = begun
        # The run before, where it died
        self.left_by: Begun | None = _parse_begun(lease.abandoned)

    def report(self, count: int, total: int) -> None:
        self.begun = replace(self.begun, done=count, total=total)
        self._lease.write(json.dumps(asdict(self.begun)))


@contextmanager
def hold_lease(job: Job, target: JobTarget, *, asked_by: str) -> Iterator[HeldLease]:
    with machines.holding(lease_name(job, target)) as lease:
        if lease is None:
            sentence = f"job {job.name!r} for {target.title} is already running"
            with inspect_lease(job, target) as (other, _):
                if other:
                    sentence += f" since {other.started[:19].replace('T', ' ')} UTC (pid {other.pid})"
            raise Locked(sentence)
        yield HeldLease(lease, begun_now(asked_by))


def begun_now(asked_by: str) -> Begun:
    asked_by = asked_by[:100]
    if machines.machine():
        asked_by += f" on {machines.machine()}"
    return Begun(os.getpid(), clock.to_text(clock.now()), asked_by)


@contextmanager
def inspect_lease(job: Job, target: JobTarget) -> Iterator[tuple[Begun | None, Begun | None]]:
    """Yield (current run, died run); at least one is None. On exit, clear what a died run left."""
    with machines.inspect(lease_name(job, target)) as (now, remains):
        yield _parse_begun(now), _parse_begun(remains)


def lease_name(job: Job, target: JobTarget) -> str:
    name = f"{job.slug}.{target.key}"
    if job.of_machine and machines.SHARED:
        return f"{name}@{machines.machine()}{env.home()}"
    return name


def announce_worker() -> ExitStack:
    return machines.announce(_WORKER)


def worker_is_running() -> bool:
    return machines.is_present(_WORKER)


def _parse_begun(content: str) -> Begun | None:
    with suppress(ValueError, TypeError):
        return Begun(**json.loads(content))
    return None


# Runs to keep per job and store; of idle runs only the last is kept (decision 22)
KEPT = 20
ATTEMPTS = 3
_MESSAGE = 2000
_SEEN_AFTER = timedelta(hours=12)


@dataclass(frozen=True, slots=True)
class RunOutcome:
    target: JobTarget
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


def record_run(job: Job, outcome: RunOutcome) -> None:
    with transaction.atomic():
        _job_run(job, outcome).save()
        runs = JobRun.objects.filter(job=job.name, store=outcome.target.alias, idle=False)
        # By their order: a run of a time when the clock was ahead must not outlast later ones
        JobRun.objects.filter(pk__in=list(runs.order_by("-pk").values_list("pk", flat=True)[KEPT:])).delete()


def _job_run(job: Job, outcome: RunOutcome) -> JobRun:
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


def record_interrupted(job: Job, target: JobTarget, begun: Begun) -> None:
    recorded = JobRun.objects.filter(job=job.name, store=target.alias, started_at=begun.started_at, pid=begun.pid)
    if not recorded.exists():
        record_run(job, RunOutcome(target, JobResult.INTERRUPTED, "its process ended during the run", begun))


def running_since(job: Job, target: JobTarget) -> Begun | None:
    with inspect_lease(job, target) as (now, dead):
        if dead:
            record_interrupted(job, target, dead)
        return now


# Stores that ran well since the job was due, or where it was interrupted three times since
def done_since(job: Job, due: datetime) -> set[str]:
    since = JobRun.objects.filter(job=job.name, started_at__range=(due, clock.now())).values("store")
    counted = since.annotate(
        well=Count("pk", filter=Q(result=JobResult.OK)), cut=Count("pk", filter=Q(result=JobResult.INTERRUPTED))
    )
    return {row["store"] for row in counted if row["well"] or row["cut"] >= ATTEMPTS}


def seen_at(job: Job, target: JobTarget) -> datetime | None:
    """Return when the job last ran over the store, at least half a day or half its interval ago, or None.

    Runs of a time when the clock was ahead do not count.
    """
    # Only the last run that found nothing to do is stored, so a job that runs every hour cannot look back half a day
    interval = timedelta(days=1)
    if schedule := Schedule.objects.filter(name=job.name).first():
        interval = schedule.calculate_next_run(schedule.next_run) - schedule.next_run
    latest = clock.now() - min(_SEEN_AFTER, interval / 2)
    earlier = JobRun.objects.filter(job=job.name, store=target.alias, started_at__lte=latest)
    newest: datetime | None = earlier.aggregate(newest=Max("started_at"))["newest"]
    return newest


# By job and store
def last_runs() -> dict[tuple[str, str], JobRun]:
    newest = JobRun.objects.values("job", "store").annotate(newest=Max("pk")).values("newest")
    return {(run.job, run.store): run for run in JobRun.objects.filter(pk__in=newest)}
