from __future__ import annotations

import signal
import sys
from argparse import ArgumentTypeError
from typing import Any, TextIO, cast

from django.core.management.base import CommandParser
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from memoryhub.management.base import HubCommand
from memoryhub.management.bench import measure

EXIT_TERMINATED = 143
_MAX_MEMORIES = 1_000_000


class Command(HubCommand):
    help = "Measure start, write, search and context pack over MCP on this machine. Uses a temporary home."
    is_slim = True
    reads = True

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--memories", type=_count, default=1000, help="memories in the store; default: 1000")

    def handle(self, *args: Any, **options: Any) -> None:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(EXIT_TERMINATED))  # unwinds, so the home is removed
        timings = measure(options["memories"])
        if self.as_json:
            self.answer(timings, [])
            return
        table = Table(title=f"{options['memories']:,} memories", title_justify="left", box=SIMPLE_HEAD)
        table.add_column("over MCP")
        for heading in ("median, ms", "95th percentile, ms", "samples"):
            table.add_column(heading, justify="right")
        for timing in timings:
            table.add_row(timing.operation, f"{timing.median:.1f}", f"{timing.p95:.1f}", str(timing.samples))
        Console(file=cast("TextIO", self.stdout.unfiltered)).print(table)


def _count(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= _MAX_MEMORIES:
        raise ArgumentTypeError(f"{text!r} is not a whole number from 1 to {_MAX_MEMORIES:,}")
    return int(text)
