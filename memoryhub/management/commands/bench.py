from __future__ import annotations

import signal
import sys
from argparse import ArgumentTypeError
from collections.abc import Iterator
from typing import Any, TextIO, cast

from django.core.management.base import CommandError, CommandParser
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from memoryhub.management.base import HubCommand
from memoryhub.management.bench import BenchSide, Template, compare, measure

EXIT_TERMINATED = 143
_MAX_MEMORIES = 1_000_000


class Command(HubCommand):
    help = (
        "Measure start, write, search and context pack over MCP on this machine, alone or beside another memory "
        "server. Uses a temporary home."
    )
    is_slim = True
    reads = True

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--memories", type=_count, default=1000, help="memories in the store; default: 1000")
        parser.add_argument(
            "--against",
            metavar="COMMAND",
            help="measure another MCP server over stdio beside the hub; it stores the test data, so give it a folder "
            "of its own: {folder} in the command is a temporary one",
        )
        parser.add_argument(
            "--against-write", metavar="'TOOL JSON'", help="its tool that stores, with {title} and {content}"
        )
        parser.add_argument("--against-search", metavar="'TOOL JSON'", help="its tool that searches, with {query}")

    def handle(self, *args: Any, **options: Any) -> None:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(EXIT_TERMINATED))  # unwinds, so the home is removed
        if options["against"] or options["against_write"] or options["against_search"]:
            self._compare(options)
            return
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

    def _compare(self, options: dict[str, Any]) -> None:
        command, write, search = (options[name] for name in ("against", "against_write", "against_search"))
        if not (command and write and search):
            raise CommandError(
                "name the other server's command and tools: --against, --against-write, --against-search"
            )
        sides = compare(
            command,
            Template.parse(write, placeholders=("title", "content")),
            Template.parse(search, placeholders=("query",)),
            options["memories"],
        )
        if self.as_json:
            self.answer([side.as_data() for side in sides], [])
            return
        table = Table(title=f"{options['memories']:,} memories", title_justify="left", box=SIMPLE_HEAD)
        table.add_column("over MCP")
        for side in sides:
            table.add_column(side.server, justify="right")
        for row in _table_rows(sides):
            table.add_row(*row)
        Console(file=cast("TextIO", self.stdout.unfiltered)).print(table)


def _table_rows(sides: list[BenchSide]) -> Iterator[list[str]]:
    for timings in zip(*(side.timings for side in sides), strict=True):
        cells = [f"{timing.median:.1f} / {timing.p95:.1f}" for timing in timings]
        yield [f"{timings[0].operation}, median / 95th percentile, ms", *cells]
    yield ["searches that found the memory", *(f"{side.hits} of {side.timings[-1].samples}" for side in sides)]
    yield ["tools listed / their tokens", *(f"{side.tools} / {side.tools_tokens:,}" for side in sides)]
    peaks = [side.peak_resident_bytes for side in sides]
    yield ["peak resident memory, MB", *("unknown" if peak is None else f"{peak / 1e6:.0f}" for peak in peaks)]


def _count(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= _MAX_MEMORIES:
        raise ArgumentTypeError(f"{text!r} is not a whole number from 1 to {_MAX_MEMORIES:,}")
    return int(text)
