"""Make a project's read models anew from its log."""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.core.management.base import CommandParser
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from memoryhub.core import log
from memoryhub.core.commands import StoreCommand
from memoryhub.core.wording import counted

EXIT_DIFFERENT = 12
_DIGITS = 12


class Command(StoreCommand):
    """``memory-hub rebuild``."""

    help = "Apply a store's log again, compare all tables, put the new rows in place (exit code 12 if one differs)."

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the choice of read models."""
        super().add_arguments(parser)
        parser.add_argument("--only", metavar="NAME,...", default="", help="replace these tables or apps alone")

    def handle(self, *args: Any, **options: Any) -> None:
        """Print a line a table."""
        only = [name.strip() for name in options["only"].split(",") if name.strip()]
        with self.store(options), _progress(log.head()[0]) as progress:
            report = log.rebuild(progress, only=only)
        for table in report.tables:
            self.stdout.write(_line(table))
        rate = report.events / report.seconds if report.seconds else 0
        self.stdout.write(
            f"{counted(report.events, 'event')} applied in {report.seconds:.2f} s ({rate:,.0f} a second), "
            f"peak memory {_peak_megabytes():.0f} MB"
        )
        if not report.identical:
            sys.exit(EXIT_DIFFERENT)


def _line(table: log.TableReport) -> str:
    digests = table.after[:_DIGITS] if table.identical else f"{table.before[:_DIGITS]} → {table.after[:_DIGITS]}"
    verdict = "identical" if table.identical else "DIFFERENT"
    kept = "" if table.replaced else ", compared only"
    return f"{table.table:<28} {table.rows:>9} rows  {digests}  {verdict}{kept}"


def _peak_megabytes() -> float:
    """Return the most memory that this process has had; the system counts it in KiB, on macOS in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


@contextmanager
def _progress(events: int) -> Iterator[Callable[[int], None]]:
    """Show a bar on a terminal, and nothing elsewhere."""
    console = Console(stderr=True)
    columns = (TextColumn("rebuild"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("rebuild", total=events)
        yield lambda done: bar.update(task, completed=done)
