"""Run the chosen measures in order; a failed one is reported, and the others go on."""

from __future__ import annotations

import json
import logging
import signal
import sys
from argparse import ArgumentTypeError
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import closing
from functools import partial
from typing import Any, TextIO, cast

from django.core.management.base import CommandParser
from django.db import connections
from rich.console import Console

from benchmarks.machine import load, machine_facts
from benchmarks.speed.bench import Bench, Samples, SizedBench, progress_shown
from benchmarks.speed.figures import Failure, Figure, Results
from benchmarks.speed.measures import MEASURES, NAMES, SIZED_MEASURES
from benchmarks.speed.table import as_data, render
from memoryhub.core.origin import use_origin
from memoryhub.core.stores import store
from memoryhub.management.base import HubCommand
from memoryhub.management.bench import temporary_home

logger = logging.getLogger(__name__)

EXIT_FAILED = 1
EXIT_TERMINATED = 143
_MAX_SIZE = 10_000_000
_PIPED_WIDTH = 120
# This measure fills the store, so it always runs before the other sized ones.
_FILL = "bulk"


class Command(HubCommand):
    help = (
        "Measure the hub in a temporary home, next to bare sqlite3 doing the same work, and compare with the "
        "goals. Exit code 1 if a measurement failed; a missed goal is a finding, not a failure."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        usual = Samples()
        parser.add_argument(
            "--sizes", type=_sizes, default="1000,10000,100000", help="memories per store, separated by commas"
        )
        parser.add_argument("--only", type=_names, default=(), metavar="NAME,…", help=f"of {', '.join(NAMES)}")
        parser.add_argument("--writes", type=_count, default=usual.writes, help="writes measured per interface")
        parser.add_argument("--searches", type=_count, default=usual.searches, help="searches measured per interface")
        parser.add_argument("--starts", type=_count, default=usual.starts, help="starts of mcp measured per kind")
        parser.add_argument("--json", action="store_true", help="print JSON")
        parser.add_argument("--keep", action="store_true", help="keep the temporary home and print its path")

    def handle(self, *args: Any, **options: Any) -> None:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(EXIT_TERMINATED))  # by way of every clean-up
        samples = Samples(options["writes"], options["searches"], options["starts"])
        with temporary_home(keep=options["keep"]) as home, progress_shown() as progress:
            results = _run(Bench(home, samples, progress), options["sizes"], options["only"])
        if options["json"]:
            self.stdout.write(json.dumps(as_data(results), indent=2, allow_nan=False))
        else:
            console = Console(file=cast("TextIO", self.stdout.unfiltered))
            console.width = console.width if console.is_terminal else _PIPED_WIDTH
            console.print(render(results))
        if options["keep"]:
            self.stderr.write(f"the stores are in {home}")
        if results.failures:
            sys.exit(EXIT_FAILED)


def _run(bench: Bench, sizes: Sequence[int], only: Collection[str]) -> Results:
    results = Results(machine_facts(bench.home))
    try:
        with use_origin(source="cli", actor="bench"), closing(bench):
            for name, measure in MEASURES.items():
                if _is_wanted(name, only):
                    results.figures += _take(results, name, None, partial(measure, bench)) or []
            if any(_is_wanted(name, only) for name in SIZED_MEASURES):
                for size in sizes:
                    _measure_size(results, bench, size, only)
    finally:
        connections.close_all()
    results.machine.update(load("after"))
    return results


# By its name, or the part before the dot; all, if none is chosen
def _is_wanted(name: str, only: Collection[str]) -> bool:
    return not only or name in only or name.partition(".")[0] in only


def _measure_size(results: Results, bench: Bench, size: int, only: Collection[str]) -> None:
    with closing(SizedBench(bench, size)) as sized:
        filled = _take(results, _FILL, size, partial(SIZED_MEASURES[_FILL], sized))
        if filled is None:
            return
        results.figures += filled if _is_wanted(_FILL, only) else []
        for name, measure in SIZED_MEASURES.items():
            if name != _FILL and _is_wanted(name, only):
                results.figures += _take(results, name, size, partial(measure, sized)) or []
    store.forget(sized.store)


def _take(
    results: Results, name: str, size: int | None, measure: Callable[[], Iterable[Figure]]
) -> list[Figure] | None:
    try:
        return list(measure())
    except Exception as error:
        logger.info("%s failed", name, exc_info=True)
        results.failures.append(Failure(name, size, f"{error}" or type(error).__name__))
        return None


def _sizes(text: str) -> list[int]:
    return sorted({_count(part) for part in text.split(",")})


def _count(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= _MAX_SIZE:
        raise ArgumentTypeError(f"{text!r} is not a whole number from 1 to {_MAX_SIZE:,}")
    return int(text)


def _names(text: str) -> frozenset[str]:
    names = frozenset(text.split(","))
    unknown = sorted(names - {*NAMES, *MEASURES, *SIZED_MEASURES})
    if unknown:
        raise ArgumentTypeError(f"{unknown[0]!r} is not a measure; choose from {', '.join(NAMES)}")
    return names
