from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import IO, Any, cast
from urllib.parse import urlsplit

from django.core.management.base import CommandParser

from benchmarks.machine import load, machine_facts
from benchmarks.speed.figures import latency
from memoryhub import env
from memoryhub.core.errors import Invalid
from memoryhub.management.base import HubCommand
from memoryhub.management.bench import temporary_home

_SQLITE, _POSTGRESQL = "sqlite", "postgresql"


class Command(HubCommand):
    help = (
        "Measure stores in SQLite and in an empty PostgreSQL database in turns, in a temporary home: creating and "
        "opening stores, writers on one store and on several, and search. Prints JSON; times are in milliseconds."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("url", help="an empty database: postgresql://…")
        parser.add_argument("--stores", type=int, default=300, help="to create and open")
        parser.add_argument("--writers", type=int, default=8)
        parser.add_argument("--seconds", type=int, default=60, help="length of each round of writing")
        parser.add_argument("--memories", type=int, default=10_000, help="to search in")
        parser.add_argument("--questions", type=int, default=200)

    def handle(self, *args: Any, **options: Any) -> None:
        if urlsplit(options["url"]).scheme not in ("postgresql", "postgres"):
            raise Invalid("give the address of an empty database, such as postgresql://hub@localhost/bench")
        with temporary_home(keep=False) as home:
            engines = {_SQLITE: _Engine(""), _POSTGRESQL: _Engine(options["url"])}
            found: dict[str, Any] = {"machine": machine_facts(home)}
            for measure in (_stores, _writers, _searches):
                for name, engine in engines.items():
                    for key, value in measure(engine, options).items():
                        found.setdefault(key, {})[name] = value
            found["machine"].update(load("after"))
        self.stdout.write(json.dumps(found, indent=2, allow_nan=False))


class _Engine:
    def __init__(self, url: str) -> None:
        self._environment = {**os.environ, env.DATABASE_VARIABLE: url}

    def run(self, act: str, store: str, number: int) -> dict[str, Any]:
        with self.process(act, store, number) as process:
            return _result(process)

    @contextmanager
    def process(self, act: str, store: str, number: int) -> Iterator[subprocess.Popen[str]]:
        command = [sys.executable, "-m", "benchmarks.engines.work", act, store, str(number)]
        with subprocess.Popen(  # noqa: S603
            command, env=self._environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            yield process


def _result(process: subprocess.Popen[str]) -> dict[str, Any]:
    output, _ = process.communicate()
    result: dict[str, Any] = json.loads(output.splitlines()[-1])
    return result


def _stores(engine: _Engine, options: dict[str, Any]) -> dict[str, Any]:
    created = engine.run("create", "many", options["stores"])["seconds"]
    opened = engine.run("open", "many", options["stores"])["seconds"]
    return {"create_first": round(1000 * created[0], 1), "create": _summary(created[1:]), "open": _summary(opened)}


def _writers(engine: _Engine, options: dict[str, Any]) -> dict[str, Any]:
    count, seconds = options["writers"], options["seconds"]
    return {
        f"{count}_writers_on_1_store": _written(engine, ["shared"] * count, seconds),
        f"{count}_writers_on_{count}_stores": _written(engine, [f"own-{index}" for index in range(count)], seconds),
    }


def _written(engine: _Engine, stores: Sequence[str], seconds: int) -> dict[str, Any]:
    with ExitStack() as stack:
        processes = [stack.enter_context(engine.process("write", store, seconds)) for store in stores]
        for process in processes:
            cast(IO[str], process.stdout).readline()
        for process in processes:
            go = cast(IO[str], process.stdin)
            go.write("go\n")
            go.flush()
        results = [_result(process) for process in processes]
    written = [time for result in results for time in result["seconds"]]
    checks = [engine.run("check", store, 0) for store in sorted(set(stores))]
    return {
        **_summary(written),
        "per_second": round(len(written) / seconds, 1),
        "failures": sum(result["failures"] for result in results),
        "lost": len(written) - sum(check["events"] for check in checks),
        "gapless": all(check["gapless"] for check in checks),
        "chain_holds": all(check["chain_holds"] for check in checks),
    }


def _searches(engine: _Engine, options: dict[str, Any]) -> dict[str, Any]:
    filled = engine.run("fill", "found", options["memories"])["seconds"]
    found = engine.run("search", "found", options["questions"])["seconds"]
    return {"fill_seconds": round(sum(filled), 1), "search": _summary(found)}


def _summary(seconds: Sequence[float]) -> dict[str, float]:
    times = latency(seconds)
    return {
        name: round(value or 0.0, 2) for name, value in (("p50", times.value), ("p95", times.p95), ("p99", times.p99))
    }
