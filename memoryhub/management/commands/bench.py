from __future__ import annotations

import signal
import sys
from argparse import ArgumentTypeError
from typing import Any, TextIO, cast

from django.core.management.base import CommandParser
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from memoryhub.core.errors import Invalid
from memoryhub.management.against import Row, compare, parse_server
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
        parser.add_argument(
            "--against",
            metavar="COMMAND",
            help="measure another MCP server beside this hub; it keeps what is written: {folder} is an empty folder",
        )
        parser.add_argument("--write", metavar="CALL", help="its tool and JSON arguments, with {title} or {content}")
        parser.add_argument("--search", metavar="CALL", help="its tool and JSON arguments, with {query}")

    def handle(self, *args: Any, **options: Any) -> None:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(EXIT_TERMINATED))  # unwinds, so the home is removed
        if options["against"] or options["write"] or options["search"]:
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
        if not (options["against"] and options["write"] and options["search"]):
            raise Invalid("--against, --write and --search belong together; give all three")
        other = parse_server(options["against"], options["write"], options["search"])
        rows = compare(other, options["memories"])
        if self.as_json:
            self.answer(rows, [])
            return
        table = Table(title=f"{options['memories']:,} memories", title_justify="left", box=SIMPLE_HEAD)
        table.add_column("over MCP, median / 95th percentile")
        by_server: dict[str, dict[str, Row]] = {}
        for row in rows:
            by_server.setdefault(row.server, {})[row.operation] = row
        for server in by_server:
            table.add_column(server, justify="right")
        for operation in dict.fromkeys(row.operation for row in rows):
            unit = "" if "," in operation else ", ms"
            table.add_row(f"{operation}{unit}", *(_figure(found[operation]) for found in by_server.values()))
        Console(file=cast("TextIO", self.stdout.unfiltered)).print(table)


def _figure(row: Row) -> str:
    if row.median is None or row.p95 is None:
        return "–" if row.value is None else f"{row.value:,}"
    return f"{row.median:.1f} / {row.p95:.1f}"


def _count(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= _MAX_MEMORIES:
        raise ArgumentTypeError(f"{text!r} is not a whole number from 1 to {_MAX_MEMORIES:,}")
    return int(text)
