from __future__ import annotations

import getpass
import sys
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.core.management.base import CommandParser

from memoryhub.core.backends.selected import stores
from memoryhub.core.errors import Invalid, Locked, NotFound
from memoryhub.core.jobs import Job, Over, defined_jobs, find_job
from memoryhub.core.stores.store import StoreId
from memoryhub.core.text import flat
from memoryhub.core.validation import command_from
from memoryhub.management.base import HubCommand, add_store_options, show_job, store_option, use_cli_origin
from memoryhub.ops import jobs
from memoryhub.ops.hub_databases import prepare_databases
from memoryhub.ops.jobs.running import JobTarget, targets_of
from memoryhub.ops.jobs.schedules import JobPlan, change_plan
from memoryhub.ops.jobs.status import JobStatus, job_statuses

EXIT_FAILED = 14
_ROW = "{:<22} {:<36} {:<17} {:<12} {}"


class Command(HubCommand):
    help = (
        "List jobs with their last and next runs; or run one in the foreground, without a worker "
        f"(exit code {EXIT_FAILED} if it failed, {Locked.exit_code} if it is already running); "
        "or change its schedule."
    )
    reads = True

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", nargs="?", help="the job to run, such as backup or verify-stores")
        add_store_options(parser, "run it only for {}; default: for all")
        plan = parser.add_argument_group("schedule")
        how = plan.add_mutually_exclusive_group()
        how.add_argument("--every", metavar="HOW", help="minute, 15-minutes, hour, 6-hours, day or week")
        how.add_argument("--off", dest="every", action="store_const", const="off", help="switch the schedule off")
        how.add_argument(
            "--default", dest="every", action="store_const", const="default", help="restore the default schedule"
        )
        plan.add_argument("--at", metavar="HH:MM", help="time of day (UTC), for every day or week")

    def values(self) -> dict[str, Iterable[str]]:
        return {"name": [job.slug for job in defined_jobs()]}

    def handle(self, *args: Any, **options: Any) -> None:
        store = store_option(options)
        prepare_databases()
        if options["every"] or options["at"]:
            self._plan(options, store)
        elif options["name"]:
            self._run(find_job(options["name"]), store)
        elif store:
            raise Invalid("give the name of a job, such as backup")
        else:
            self._list()

    def _plan(self, options: dict[str, Any], store: StoreId | None) -> None:
        if not options["name"] or store:
            raise Invalid(
                "give the name of a job, such as backup, without a store: its schedule is the same for all stores"
            )
        job = find_job(options["name"])
        with use_cli_origin():
            plan = change_plan(command=command_from(JobPlan, {**options, "job": job.slug}))
        due = f"; next run {_local_minute(plan.next_run)} UTC" if plan.next_run else ""
        data = {"job": job.slug, "runs": plan.described, "next_run": plan.next_run}
        self.answer(data, [f"{job.slug}: {plan.described}{due}"])

    def _list(self) -> None:
        statuses = job_statuses()
        lines = [_ROW.format("JOB", "RUNS", "LAST RUN (UTC)", "RESULT", "NEXT RUN (UTC)")]
        for status in statuses:
            ended = status.last.ended_at if status.last else None
            due = "off" if status.is_off else _local_minute(status.next_run)
            lines.append(_ROW.format(status.job.slug, status.runs, _local_minute(ended), status.result, due))
            for failure in status.failures:
                if failure.last:
                    lines.append(f"  {failure.target.title}: {failure.last.result}: {flat(failure.last.message)}")
        self.answer({"results": list(map(_facts, statuses))}, lines)

    def _run(self, job: Job, store: StoreId | None) -> None:
        targets = _targets(job, store)
        with show_job(job, len(targets), self.stderr) as watch:
            outcomes = jobs.run_job(job=job, targets=targets, asked_by=getpass.getuser(), watch=watch)
        data, lines = [], []
        for outcome in outcomes:
            title, result, message = outcome.target.title, outcome.result, outcome.message
            data.append({"target": title, "result": result, "message": message})
            lines.append(f"{title}: {result}: {flat(message) or 'nothing to do'}")
        self.answer({"results": data}, lines)
        results = {outcome.result for outcome in outcomes}
        if results - {"ok", jobs.BUSY}:
            sys.exit(EXIT_FAILED)
        if jobs.BUSY in results:
            sys.exit(Locked.exit_code)


def _targets(job: Job, store: StoreId | None) -> list[JobTarget]:
    if store is None:
        return targets_of(job)
    if job.over is Over.HUB:
        raise Invalid(f"job {job.slug!r} runs for the hub; run it without a store")
    if job.over is Over.PROJECTS and JobTarget(store) not in targets_of(job) and store.scope != "project":
        raise Invalid(f"job {job.slug!r} runs for projects; choose one with --project")
    if not stores.exists(store):
        raise NotFound(f"there is no {store.scope} {store.name!r} in this hub")
    return [JobTarget(store)]


def _facts(status: JobStatus) -> dict[str, Any]:
    failures = [(failure.target.title, failure.last) for failure in status.failures if failure.last]
    return {
        "job": status.job.slug,
        "runs": status.runs,
        "last_run": status.last.ended_at if status.last else None,
        "result": status.result,
        "next_run": status.next_run,
        "failures": [{"target": target, "result": run.result, "message": run.message} for target, run in failures],
    }


def _local_minute(moment: datetime | None) -> str:
    return f"{moment:%Y-%m-%d %H:%M}" if moment else "–"
