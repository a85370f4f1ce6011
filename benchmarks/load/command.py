from __future__ import annotations

import asyncio
import json
import statistics
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser
from django.db import connections

from benchmarks.load.hooks import HookLoad, summary
from benchmarks.load.run import PAGE, WRITE, Load, Outcome, Plan
from benchmarks.machine import load, machine_facts
from benchmarks.speed.bench import Progress, progress_shown
from benchmarks.speed.figures import latency
from memoryhub.core.errors import Unavailable
from memoryhub.core.origin import use_origin
from memoryhub.management.base import HubCommand
from memoryhub.management.bench import temporary_home
from memoryhub.ops.hub_databases import prepare_databases

_MEGABYTE = 1_000_000


class Command(HubCommand):
    help = (
        "Measure a hub under a team's load in a temporary home: clients of many projects over MCP and a person in the "
        "admin, beside `mcp --http` with the same clients on one project, before and after. Prints JSON."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        usual = Plan()
        parser.add_argument("--projects", type=int, default=usual.projects)
        parser.add_argument("--clients", type=int, default=usual.clients)
        parser.add_argument("--seconds", type=float, default=usual.seconds, help="length of the load on the hub")
        parser.add_argument("--rate", type=float, default=usual.rate, help="calls a second of each client")
        parser.add_argument("--memories", type=int, default=usual.memories, help="in each project before the load")
        parser.add_argument(
            "--baseline", type=float, default=60.0, help="seconds of each of the two baselines; 0: none"
        )
        parser.add_argument("--hooks", type=float, default=0.0, help="send so many hook events a second instead")
        parser.add_argument("--windows", type=int, default=1_000, help="clients' windows that --hooks come from")
        parser.add_argument("--kill-every", type=float, default=0.0, help="kill the hub after so many seconds, again")

    def handle(self, *args: Any, **options: Any) -> None:
        names = ("projects", "clients", "seconds", "rate", "memories", "kill_every")
        plan = Plan(**{name: options[name] for name in names})
        with temporary_home(keep=False) as home, progress_shown() as progress, use_origin(source="cli", actor="bench"):
            # The settings were made before this home
            for alias, name in (("default", "hub.db"), ("jobs", "jobs.db")):
                connections.settings[alias]["NAME"] = str(home / name)
            prepare_databases()
            if options["hooks"]:
                self._hooks(home, plan, progress, options)
                return
            found: dict[str, Any] = {"machine": machine_facts(home), "plan": {name: options[name] for name in names}}
            measured = Load(home, plan, progress)
            measured.prepare()
            baselines = []
            if options["baseline"]:
                baselines.append(asyncio.run(measured.on_one_project(options["baseline"])))
            hub = asyncio.run(measured.on_the_hub())
            if options["baseline"]:
                baselines.append(asyncio.run(measured.on_one_project(options["baseline"])))
            found["hub"] = {**_data(hub), "lost_writes": measured.lost(hub)}
            found["mcp_http"] = [_data(outcome) for outcome in baselines]
            if baselines:
                one = statistics.fmean(_p95(outcome) for outcome in baselines)
                found["write_p95_ratio"] = round(_p95(hub) / one, 2)
            found["machine"].update(load("after"))
        self.stdout.write(json.dumps(found, indent=2, allow_nan=False))

    def _hooks(self, home: Path, plan: Plan, progress: Progress, options: dict[str, Any]) -> None:
        hooks = HookLoad(
            home, projects=plan.names, windows=options["windows"], rate=options["hooks"], progress=progress
        )
        outcome = asyncio.run(hooks.run(plan.seconds))
        figures = {
            "machine": {**machine_facts(home), **load("after")},
            **summary(hooks),
            "milliseconds": {event: _latency(seconds) for event, seconds in outcome.seconds.items()},
        }
        self.stdout.write(json.dumps(figures, indent=2, allow_nan=False))


def _p95(outcome: Outcome) -> float:
    return latency(outcome.seconds[WRITE]).p95 or 0.0


def _data(outcome: Outcome) -> dict[str, Any]:
    if not outcome.seconds[WRITE]:
        raise Unavailable(f"no write succeeded: {'; '.join(outcome.errors) or 'there was none'}")
    by_project = sorted(latency(seconds).p95 or 0.0 for seconds in outcome.writes_of.values())
    return {
        "calls": outcome.calls,
        "errors": dict(outcome.errors.most_common()),
        "kills": outcome.kills,
        "peak_megabytes": round(outcome.peak_bytes / _MEGABYTE),
        "milliseconds": {act: _latency(seconds) for act, seconds in outcome.seconds.items() if seconds},
        "write_p95_of_projects": {"least": round(by_project[0], 1), "most": round(by_project[-1], 1)},
        "admin_p95_below_a_second": _is_usable(outcome),
    }


def _is_usable(outcome: Outcome) -> bool | None:
    pages = outcome.seconds.get(PAGE)
    return (latency(pages).p95 or 0.0) < 1_000 if pages else None


def _latency(seconds: list[float]) -> dict[str, float]:
    amount = latency(seconds)
    values = {"p50": amount.value, "p95": amount.p95, "p99": amount.p99, "most": 1000 * max(seconds)}
    return {name: round(value or 0.0, 1) for name, value in values.items()} | {"samples": amount.samples}
