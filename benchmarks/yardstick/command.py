from __future__ import annotations

import json
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.db import connections

from benchmarks.machine import load, machine_facts
from benchmarks.quality.command import embedding_engine, has_model
from benchmarks.sets.beliefs import belief_set
from benchmarks.sets.chats import beam, locomo, sde
from benchmarks.sets.model import EvaluationSet
from benchmarks.sets.notes import beir, json_sets
from benchmarks.yardstick.adapters import SERVERS, read_adapter
from benchmarks.yardstick.hub import HubStores
from benchmarks.yardstick.measures import HALVES, chosen_queries, measure_system
from benchmarks.yardstick.operations import Effort, measure_server
from benchmarks.yardstick.systems import AdaptedServer, LibraryBm25, MemorySystem
from benchmarks.yardstick.table import HUB_SERVER, YardstickResults, markdown, read_results
from memoryhub.management.base import HubCommand
from memoryhub.management.bench import temporary_home
from memoryhub.ops.serving.embedding import run_model

_ALL = "all"
_READERS: dict[str, tuple[str, Callable[[Path], EvaluationSet], str]] = {
    "beam": ("FOLDER", beam, "a copy of BEAM, or a folder of its chats"),
    "beliefs": ("FOLDER", belief_set, "a copy of PrecisionMemBench"),
    "sde": ("FOLDER", sde, "a copy of sde-bench"),
    "beir": ("FOLDER", beir, "a set in BEIR's format"),
    "sets": ("FOLDER", json_sets, "JSON sets of prompts or of cases of harm"),
}


class Command(HubCommand):
    help = (
        "Measure memory servers, the hub and BM25 of a library by one yardstick: the same documents and queries for "
        "each, what is given and what it costs, and what happens to secrets and at a kill. Without a key."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--programs", type=Path, default=Path(), help="a folder with each server in FOLDER/NAME")
        parser.add_argument(
            "--servers", type=_names, default=(), metavar="NAME,…", help="adapters to measure; memory-hub is the hub"
        )
        parser.add_argument("--adapters", type=Path, default=SERVERS, metavar="FOLDER", help="of the adapters")
        parser.add_argument("--locomo", type=Path, metavar="FILE", help="LoCoMo's JSON")
        parser.add_argument(
            "--without", type=Path, metavar="FILE", help="leave out LoCoMo's conversations in this file"
        )
        for name, (metavar, _, description) in _READERS.items():
            parser.add_argument(f"--{name}", type=Path, action="append", default=[], metavar=metavar, help=description)
        parser.add_argument("--half", choices=(_ALL, *HALVES), default=_ALL, help="of the queries of each set")
        parser.add_argument("--questions", type=_count, metavar="N", help="at most N queries of each set")
        parser.add_argument("--words-alone", action="store_true", help="the hub without embeddings only")
        parser.add_argument("--no-costs", action="store_true", help="skip times, secrets and kills")
        parser.add_argument("--kills", type=_count, default=Effort().kills, metavar="N")
        parser.add_argument("--secrets", type=_count, default=Effort().secrets, metavar="N")
        parser.add_argument("--writes", type=_count, default=Effort().writes, metavar="N")
        parser.add_argument("--searches", type=_count, default=Effort().searches, metavar="N")
        parser.add_argument("--starts", type=_count, default=Effort().starts, metavar="N")
        parser.add_argument("--json", type=Path, metavar="FILE", help="also write all figures as JSON, as they come")
        parser.add_argument(
            "--resume", action="store_true", help="measure only what the JSON file lacks, or where something failed"
        )
        parser.add_argument("--markdown", type=Path, metavar="FILE", help="also write the tables as Markdown")

    def handle(self, *args: Any, **options: Any) -> None:
        servers = [
            AdaptedServer(read_adapter(name, options["adapters"]), options["programs"]) for name in options["servers"]
        ]
        sets = [chosen_queries(read, options["half"], options["questions"]) for read in _sets(options)]
        results = _stored_results(options)
        named = {adapter.name: adapter for adapter in (*results.adapters, *(server.adapter for server in servers))}
        results.adapters = list(named.values())
        meaning = bool(sets) and not options["words_alone"] and has_model()
        with temporary_home(keep=False) as home, ExitStack() as stack:
            if meaning:
                # This process embeds documents; servers ask the model's own process
                stack.enter_context(embedding_engine())
                stack.enter_context(run_model())
            results.machine = machine_facts(home)
            hubs = [HubStores(home, meaning=with_meaning) for with_meaning in ([True, False] if meaning else [False])]
            peers = [server for server in servers if server.name != HUB_SERVER]
            systems: list[MemorySystem] = [*hubs, LibraryBm25(), *peers]
            try:
                for chosen, system in product(sets, systems):
                    self._measure_system(results, chosen, system, options["json"])
            finally:
                connections.close_all()
        if not options["no_costs"]:
            effort = Effort(*(options[name] for name in ("writes", "searches", "starts", "secrets", "kills")))
            for server in servers:
                self._measure_costs(results, server, effort, options["json"])
        results.machine = {**results.machine, **load("after")}
        _write(results, options["json"])
        text = markdown(results)
        if options["markdown"]:
            options["markdown"].write_text(text)
        else:
            self.stdout.write(text)

    def _measure_system(
        self, results: YardstickResults, chosen: EvaluationSet, system: MemorySystem, path: Path | None
    ) -> None:
        result = results.of_set(chosen)
        if any(row.system == system.name and not row.failure for row in result.doors):
            return
        result.doors[:] = [row for row in result.doors if row.system != system.name]
        result.doors.extend(measure_system(system, chosen, self._progress))
        _write(results, path)

    def _measure_costs(
        self, results: YardstickResults, server: AdaptedServer, effort: Effort, path: Path | None
    ) -> None:
        if any(row.system == server.name and not row.failures for row in results.servers):
            return
        results.servers[:] = [row for row in results.servers if row.system != server.name]
        results.servers.append(measure_server(server, effort, self._progress))
        _write(results, path)

    def _progress(self, what: str) -> None:
        self.stderr.write(what)


def _sets(options: Mapping[str, Any]) -> Iterator[EvaluationSet]:
    if options["locomo"]:
        yield locomo(options["locomo"], without=options["without"])
    for name, (_, read, _) in _READERS.items():
        yield from map(read, options[name])


def _stored_results(options: Mapping[str, Any]) -> YardstickResults:
    path, half = options["json"], options["half"]
    if not options["resume"]:
        return YardstickResults(half)
    if path is None:
        raise CommandError("--resume needs --json with the file of results")
    results = read_results(path)
    if results.half != half:
        raise CommandError(f"{path} has results of --half {results.half}")
    return results


# After each system, so that an interrupted run loses one at most
def _write(results: YardstickResults, path: Path | None) -> None:
    if path:
        path.write_text(json.dumps(results.as_data(), indent=2) + "\n")


def _names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, text.split(",")))


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)
