"""Schedules of jobs, their plans, and the queue."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal, get_args

from django.db import DatabaseError, close_old_connections, connections, transaction
from django.db.models import QuerySet
from django_q.brokers.orm import ORM
from django_q.conf import Conf
from django_q.models import OrmQ, Schedule
from django_q.scheduler import scheduler
from django_q.tasks import async_task
from pydantic import AfterValidator, Field, model_validator

from memoryhub.core import clock
from memoryhub.core.backends.selected import machines
from memoryhub.core.errors import HubError, Invalid
from memoryhub.core.jobs import Every, Job, defined_jobs, find_job
from memoryhub.core.permissions import Act, demand
from memoryhub.core.schemas import Command
from memoryhub.core.stores.store import use_store
from memoryhub.models import Subject
from memoryhub.ops.jobs.running import JobTarget, run_due, targets_of
from memoryhub.registry.access_history import note_change

logger = logging.getLogger(__name__)

FUNCTION = "memoryhub.ops.jobs.run_scheduled"
# Who asked for a run that was due
SCHEDULE = "schedule"
# How often a machine looks for jobs over the files of its own home
_LOOK_SECONDS = 30.0
_TYPES = {Every.MINUTE: Schedule.MINUTES, Every.HOUR: Schedule.HOURLY, Every.DAY: Schedule.DAILY}


# Without ``catch_up``: a schedule that was missed several times is queued once (decision 22)
def install_schedules() -> None:
    with transaction.atomic(using="jobs"):
        jobs = {job.name: job for job in defined_jobs() if job.every in _TYPES}
        existing = {schedule.name: schedule for schedule in Schedule.objects.filter(name__in=jobs)}
        Schedule.objects.bulk_create(new_schedule(job) for name, job in jobs.items() if name not in existing)
        Schedule.objects.filter(func=FUNCTION).exclude(name__in=jobs).delete()
        older = [schedule for schedule in existing.values() if schedule.func != FUNCTION]
        for schedule in older:
            schedule.func = FUNCTION
            schedule.args = repr(schedule.name)
            schedule.intended_date_kwarg = "due"
        Schedule.objects.bulk_update(older, ["func", "args", "intended_date_kwarg"])


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
    outcomes, remaining = run_due(job=job, due=fell_due, targets=targets, asked_by=asked_by)
    if remaining:
        enqueue(job=job, targets=remaining, asked_by=asked_by, due=fell_due)
    return {outcome.target.title: outcome.message for outcome in outcomes if outcome.message}


def enqueue(*, job: Job, targets: Sequence[JobTarget], asked_by: str, due: datetime | None = None) -> None:
    due = due or clock.now()
    aliases = [target.alias for target in targets]
    async_task(FUNCTION, job.name, due=due.isoformat(), aliases=aliases, asked_by=asked_by, group=job.name)
    _enqueued.set()


# Set when this process queues a task; other processes' tasks are seen at the next query
_enqueued = threading.Event()
_ASK_SECONDS = 2.0


def wait_for_tasks(stop: threading.Event) -> bool:
    """Wait until the queue has a task for this machine's worker; return False once ``stop`` is set."""
    while not stop.is_set():
        _enqueued.clear()
        try:
            close_old_connections()
            if _waiting_tasks().exists():
                return True
        except DatabaseError as error:
            logger.warning("the queue could not be read; retrying: %s", error)
        _enqueued.wait(_ASK_SECONDS)
    return False


# Where one worker runs everything, a task that is held while it does not run belongs to one that died
def _waiting_tasks() -> QuerySet[OrmQ]:
    tasks: QuerySet[OrmQ] = OrmQ.objects.all()
    return tasks.filter(lock__lte=clock.now()) if machines.SHARED else tasks


def queue_is_empty() -> bool:
    return not OrmQ.objects.exists()


# Aliases of the stores with a queued run, by job; None: all stores
def queued() -> dict[str, set[str] | None]:
    waiting: dict[str, set[str] | None] = {}
    for row in OrmQ.objects.all():
        task: dict[str, Any] = row.task
        if task.get("func") != FUNCTION:
            continue
        name = task["args"][0]
        aliases = task["kwargs"].get("aliases")
        stores = waiting.setdefault(name, set())
        if aliases is None:
            waiting[name] = None
        elif stores is not None:
            stores.update(aliases)
    return waiting


def next_runs() -> dict[str, datetime]:
    return {schedule.name: schedule.next_run for schedule in Schedule.objects.filter(func=FUNCTION).exclude(repeats=0)}


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
        connections.close_all()
        if stop.wait(_LOOK_SECONDS):
            return


How = Literal["minute", "15-minutes", "hour", "6-hours", "day", "week", "off", "default"]
HOWS: tuple[How, ...] = get_args(How)
# Type of schedule in django-q2, its minutes, and the interval
_ROWS = {
    "minute": (Schedule.MINUTES, 1, timedelta(minutes=1)),
    "15-minutes": (Schedule.MINUTES, 15, timedelta(minutes=15)),
    "hour": (Schedule.HOURLY, None, timedelta(hours=1)),
    "6-hours": (Schedule.MINUTES, 360, timedelta(hours=6)),
    "day": (Schedule.DAILY, None, timedelta(days=1)),
    "week": (Schedule.WEEKLY, None, timedelta(days=7)),
}
# Intervals that have a time of day
AT_A_TIME = ("day", "week")
_TIME = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")
_FOR_EVER, _NEVER = -1, 0
# How far the clocks of a hub's machines may differ
_TOLERANCE = timedelta(minutes=5)
_QUEUE_SECONDS = 30.0
_LONG_MISSED = timedelta(days=30)
# A task that is taken is held for so long at most
_LONGEST_HELD = timedelta(seconds=Conf.RETRY) + _TOLERANCE


def _time_of_day(text: str) -> str:
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError("must be a time of day in UTC from 00:00 to 23:59, such as 03:00")
    return f"{int(match[1]):02}:{match[2]}"


class JobPlan(Command):
    job: str = Field(min_length=1, max_length=64, description="name of the job")
    every: How | None = Field(None, description="interval; default: unchanged")
    at: Annotated[str, AfterValidator(_time_of_day)] | None = Field(
        None, description="time of day in UTC, such as 03:00, for every day or week"
    )

    @model_validator(mode="after")
    def _has_change(self) -> JobPlan:
        if self.every is None and self.at is None:
            raise ValueError(f"choose an interval ({', '.join(HOWS)}) or a time of day")
        if self.at is not None and self.every not in (None, *AT_A_TIME):
            raise ValueError(f"'at' is for every {' or '.join(AT_A_TIME)}, not for {self.every!r}; omit it")
        return self


@dataclass(frozen=True, slots=True)
class SchedulePlan:
    # One of HOWS; "" for a schedule that was set in the database
    every: str = ""
    # Time of day in UTC, if the interval has one
    at: str = ""
    # None if off or on demand
    next_run: datetime | None = None

    @property
    def described(self) -> str:
        interval = _WORDS.get(self.every, f"every {self.every}")
        return f"{interval} at {self.at} UTC" if self.at else interval


_WORDS = {"": "as set by hand", "off": "switched off", "15-minutes": "every 15 minutes", "6-hours": "every 6 hours"}


# For jobs on demand, and for those whose row does not exist yet
NO_PLAN = SchedulePlan()


def plans() -> dict[str, SchedulePlan]:
    return {row.name: _plan(row) for row in Schedule.objects.filter(func=FUNCTION)}


def change_plan(*, command: JobPlan) -> SchedulePlan:
    """Change when a job runs; queued runs are not affected.

    Without a time of day, the next run stays as planned, or is one interval from now if that is sooner.

    Raises:
        Forbidden: the caller may not administer.
        Invalid: unknown job, job on demand, or a time of day for an interval that has none.
    """
    demand(Act.ADMINISTER)
    job = find_job(command.job)
    if job.every is Every.DEMAND:
        raise Invalid(f"job {job.slug!r} runs only on demand; it has no schedule")
    with transaction.atomic(using="jobs"):
        row = Schedule.objects.filter(name=job.name, func=FUNCTION).first() or new_schedule(job)
        _change_schedule(row, job, command)
        row.save()
        plan = _plan(row)
        change = plan.described
        if plan.every != "off":
            change = f"set to run {change}"
        note_change(Subject.JOB, job.slug, change)
    return plan


def default_of(job: Job) -> str:
    return job.every.value.removeprefix("every ")


def _change_schedule(row: Schedule, job: Job, command: JobPlan) -> None:
    if command.every == "off":
        row.repeats = _NEVER
        return
    every = command.every or _every(row)
    if every == "default":
        every = default_of(job)
    if every not in AT_A_TIME and (command.at or not every):
        raise Invalid(
            f"job {job.slug!r} runs {_plan(row).described}, which has no time of day; "
            "also choose every day or every week"
        )
    row.schedule_type, row.minutes, step = _ROWS[every]
    row.repeats = _FOR_EVER
    now = clock.now()
    row.next_run = min(row.next_run, now + step)
    if command.at:
        hour, minute = map(int, command.at.split(":"))
        row.next_run = now.replace(hour=hour, minute=minute, second=0, microsecond=0)
        if row.next_run <= now:
            row.next_run += timedelta(days=1)


def _plan(row: Schedule) -> SchedulePlan:
    if row.repeats == _NEVER:
        return SchedulePlan("off")
    every = _every(row)
    at = f"{row.next_run:%H:%M}" if every in AT_A_TIME else ""
    return SchedulePlan(every, at, row.next_run)


def _every(row: Schedule) -> str:
    for every, (schedule_type, minutes, _) in _ROWS.items():
        if row.schedule_type == schedule_type and minutes in (None, row.minutes):
            return every
    return ""


def queue_due(*, skip_idle: bool = False) -> None:
    """Queue the jobs that are due, after setting right what a clock that was wrong has planned.

    Args:
        skip_idle: jobs that have nothing to do in any store are planned for their next time instead.
    """
    now = clock.now()
    for row in Schedule.objects.filter(func=FUNCTION).exclude(repeats=_NEVER):
        step = row.calculate_next_run(row.next_run) - row.next_run
        next_run = _realigned(row.next_run, step, now)
        if skip_idle and next_run <= now and not _has_work(row.name):
            next_run += ((now - next_run) // step + 1) * step
        if next_run != row.next_run:
            Schedule.objects.filter(pk=row.pk, next_run=row.next_run).update(next_run=next_run)
    OrmQ.objects.filter(lock__gt=now + _LONGEST_HELD).update(lock=now)
    scheduler()


def keep_queueing(stop: threading.Event) -> None:
    """Queue the jobs that are due every half minute, until ``stop`` is set."""
    skip_idle = False  # an upgrade can give every job work that its check does not see
    while not stop.wait(_QUEUE_SECONDS):
        try:
            queue_due(skip_idle=skip_idle)
            skip_idle = True
        except Exception:
            logger.exception("the jobs that are due could not be queued; retrying")
        connections.close_all()
        _enqueued.set()


# A store that cannot be read has work: the run reports the reason
def _has_work(name: str) -> bool:
    job = find_job(name)
    if job.has_work is None:
        return True
    for target in targets_of(job):
        if target.store is None:
            return True
        try:
            with use_store(target.store):
                if job.has_work():
                    return True
        except HubError:
            return True
    return False


# Whole steps, so that a time of day stays. django-q2 counts missed runs one by one: minutes since 1970 take minutes.
def _realigned(next_run: datetime, step: timedelta, now: datetime) -> datetime:
    if next_run > now + step + _TOLERANCE:
        return next_run - (next_run - now) // step * step
    if next_run < now - _LONG_MISSED:
        return next_run + (now - next_run) // step * step
    return next_run


# Longer than a lease, so that a killed worker's run has ended for all before its task is taken again
HELD_SECONDS = 60.0
_RENEW_SECONDS = 15.0


# The queue of several workers: a task is held for a minute at a time, for as long as the worker that took it lives
class SharedQueue(ORM):  # type: ignore[misc]
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._lock = threading.Lock()
        # When each task was taken by this process, on the monotonic clock
        self._claimed: dict[int, float] = {}
        self._renews = False

    def timeout(self, task: OrmQ) -> datetime:
        return clock.now() + timedelta(seconds=HELD_SECONDS)

    def dequeue(self) -> list[tuple[int, str]] | None:
        tasks: list[tuple[int, str]] | None = super().dequeue()
        if tasks:
            with self._lock:
                self._claimed.update(dict.fromkeys((key for key, _ in tasks), time.monotonic()))
                if not self._renews:
                    self._renews = True
                    threading.Thread(target=self._keep, name="queue", daemon=True).start()
        return tasks

    # In a thread, because the process that takes tasks waits until a worker is free
    def _keep(self) -> None:
        while True:
            time.sleep(_RENEW_SECONDS)
            longest = time.monotonic() - Conf.TIMEOUT
            with self._lock:
                # A failed task stays in the queue, to be taken again after the longest time that a run may take
                self._claimed = {key: since for key, since in self._claimed.items() if since > longest}
                keys = list(self._claimed)
                if not keys:
                    self._renews = False
                    return
            try:
                self._renew(keys)
            except DatabaseError as error:
                logger.warning("tasks of the queue could not be held: %s", error)

    def _renew(self, keys: list[int]) -> None:
        rows = OrmQ.objects.filter(pk__in=keys)
        rows.update(lock=clock.now() + timedelta(seconds=HELD_SECONDS))
        held = set(rows.values_list("pk", flat=True))
        with self._lock:
            self._claimed = {key: since for key, since in self._claimed.items() if key in held or key not in keys}
