from __future__ import annotations

import json
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser
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
from benchmarks.yardstick.table import HUB_SERVER, SetResults, YardstickResults, markdown
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
        parser.add_argument("--json", type=Path, metavar="FILE", help="also write all figures as JSON")
        parser.add_argument("--markdown", type=Path, metavar="FILE", help="also write the tables as Markdown")

    def handle(self, *args: Any, **options: Any) -> None:
        servers = [
            AdaptedServer(read_adapter(name, options["adapters"]), options["programs"]) for name in options["servers"]
        ]
        sets = [chosen_queries(read, options["half"], options["questions"]) for read in _sets(options)]
        meaning = bool(sets) and not options["words_alone"] and has_model()
        with temporary_home(keep=False) as home, ExitStack() as stack:
            if meaning:
                # This process embeds documents; servers ask the model's own process
                stack.enter_context(embedding_engine())
                stack.enter_context(run_model())
            machine = machine_facts(home)
            try:
                set_results = [self._measure_set(chosen, servers, home, meaning=meaning) for chosen in sets]
            finally:
                connections.close_all()
        effort = Effort(*(options[name] for name in ("writes", "searches", "starts", "secrets", "kills")))
        costs = [] if options["no_costs"] else [measure_server(server, effort, self._progress) for server in servers]
        adapters = [server.adapter for server in servers]
        results = YardstickResults({**machine, **load("after")}, options["half"], adapters, set_results, costs)
        text = markdown(results)
        if options["markdown"]:
            options["markdown"].write_text(text)
        else:
            self.stdout.write(text)
        if options["json"]:
            options["json"].write_text(json.dumps(results.as_data(), indent=2) + "\n")

    def _measure_set(
        self, chosen: EvaluationSet, servers: Sequence[AdaptedServer], home: Path, *, meaning: bool
    ) -> SetResults:
        hubs = [HubStores(home, meaning=True)] if meaning else []
        others = [server for server in servers if server.name != HUB_SERVER]
        systems: list[MemorySystem] = [*hubs, HubStores(home, meaning=False), LibraryBm25(), *others]
        doors = [door for system in systems for door in measure_system(system, chosen, self._progress)]
        documents = sum(len(collection.documents) for collection in chosen.collections)
        queries = sum(len(collection.queries) for collection in chosen.collections)
        return SetResults(chosen.key, chosen.label, documents, queries, doors)

    def _progress(self, what: str) -> None:
        self.stderr.write(what)


def _sets(options: Mapping[str, Any]) -> Iterator[EvaluationSet]:
    if options["locomo"]:
        yield locomo(options["locomo"], without=options["without"])
    for name, (_, read, _) in _READERS.items():
        yield from map(read, options[name])


def _names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, text.split(",")))


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)
