from __future__ import annotations

import json
import signal
import sys
from argparse import ArgumentTypeError
from typing import Any, TextIO, cast

from django.core.management.base import CommandParser
from rich.console import Console

from benchmarks.speed.bench import Samples, progress_shown
from benchmarks.speed.measures import MEASURES, NAMES, SIZED_MEASURES
from benchmarks.speed.run import Plan, run
from benchmarks.speed.table import as_data, render
from memoryhub.management.base import HubCommand
from memoryhub.management.bench import temporary_home

EXIT_FAILED = 1
EXIT_TERMINATED = 143
_MAX_SIZE = 10_000_000
_PIPED_WIDTH = 120


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
        plan = Plan(options["sizes"], samples, options["only"])
        with temporary_home(keep=options["keep"]) as home, progress_shown() as progress:
            results = run(plan, home, progress)
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
