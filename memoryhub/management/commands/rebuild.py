"""Make a project's read models anew from its log."""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from memoryhub.config.identity import identify_project
from memoryhub.core import log
from memoryhub.core.errors import Unavailable
from memoryhub.core.stores.store import StoreId, project_store, use_store
from memoryhub.core.text import counted
from memoryhub.management.base import HubCommand, add_store_options, store_option
from memoryhub.ops.backups.rebuilding import rebuild_store

EXIT_DIFFERENT = 12
_DIGITS = 12


class Command(HubCommand):
    """``memory-hub rebuild``."""

    help = (
        "Apply a store's log again, compare all tables, put the new rows in place (exit code 12 if one differs). "
        "A damaged file is built anew from its log, if that can be read whole; the damaged one is kept."
    )

    interrupted = "interrupted; the read models are whole, as they were or rebuilt, and the log is untouched"

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the store and the choice of read models."""
        add_store_options(parser, "in {}", "; default: the one of this folder")
        parser.add_argument(
            "--only",
            metavar="NAME,...",
            default="",
            help="replace these tables or apps alone; of a damaged file, all are replaced",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Print a line a table."""
        only = [name.strip() for name in options["only"].split(",") if name.strip()]
        store = store_option(options) or project_store(identify_project(project=None, directory=Path.cwd()))
        with _progress(_events(store)) as progress:
            done = rebuild_store(store=store, progress=progress, only=only)
        report = done.report
        if done.problem:
            self.stdout.write(f"{done.problem}\nthe file was built anew from its log; as it was before: {done.kept}")
        for table in report.tables:
            self.stdout.write(_line(table))
        rate = report.events / report.seconds if report.seconds else 0
        self.stdout.write(
            f"{counted(report.events, 'event')} applied in {report.seconds:.2f} s ({rate:,.0f} a second), "
            f"peak memory {_peak_megabytes():.0f} MB"
        )
        if not report.identical:
            sys.exit(EXIT_DIFFERENT)


def _events(store: StoreId) -> int | None:
    """Return how many events there are, None where the store is too damaged to say."""
    try:
        with use_store(store):
            return log.head()[0]
    except Unavailable:
        return None


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
def _progress(events: int | None) -> Iterator[Callable[[int], None]]:
    """Show a bar on a terminal, and nothing elsewhere."""
    console = Console(stderr=True)
    columns = (TextColumn("rebuild"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("rebuild", total=events)
        yield lambda done: bar.update(task, completed=done)
