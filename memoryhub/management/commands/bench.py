from __future__ import annotations

import signal
import sys
from argparse import ArgumentTypeError
from collections.abc import Iterable
from typing import Any

from django.core.management.base import CommandError, CommandParser
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from memoryhub.management.base import HubCommand
from memoryhub.management.bench import Template, compare, measure

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
        headings = ("median, ms", "95th percentile, ms", "samples")
        rows = [[timing.operation, f"{timing.median:.1f}", f"{timing.p95:.1f}", timing.samples] for timing in timings]
        self._show(timings, options["memories"], headings, rows)

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
        rows = []
        for timings in zip(*(side.timings for side in sides), strict=True):
            cells = [f"{timing.median:.1f} / {timing.p95:.1f}" for timing in timings]
            rows.append([f"{timings[0].operation}, median / 95th percentile, ms", *cells])
        peaks = [side.peak_resident_bytes for side in sides]
        rows += [
            ["searches that found the memory", *(f"{side.hits} of {side.timings[-1].samples}" for side in sides)],
            ["tools listed / their tokens", *(f"{side.tools} / {side.tools_tokens:,}" for side in sides)],
            ["peak resident memory, MB", *("unknown" if peak is None else f"{peak / 1e6:.0f}" for peak in peaks)],
        ]
        data = [side.as_data() for side in sides]
        self._show(data, options["memories"], [side.server for side in sides], rows)

    def _show(self, data: Any, memories: int, headings: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
        if self.as_json:
            self.answer(data, [])
            return
        table = Table(title=f"{memories:,} memories", title_justify="left", box=SIMPLE_HEAD)
        table.add_column("over MCP")
        for heading in headings:
            table.add_column(heading, justify="right")
        for row in rows:
            table.add_row(*map(str, row))
        Console(file=self.stdout.unfiltered).print(table)


def _count(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= _MAX_MEMORIES:
        raise ArgumentTypeError(f"{text!r} is not a whole number from 1 to {_MAX_MEMORIES:,}")
    return int(text)
