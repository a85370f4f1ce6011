from __future__ import annotations

import resource
import sys
from contextlib import suppress
from typing import Any

from django.core.management.base import CommandParser

from memoryhub.core import log
from memoryhub.core.errors import Unavailable
from memoryhub.core.stores.store import use_store
from memoryhub.core.text import counted
from memoryhub.management.base import HubCommand, add_store_options, progress_bar, store_or_folders
from memoryhub.ops.backups.restoring import rebuild_store

EXIT_DIFFERENT = 12
_DIGITS = 12


class Command(HubCommand):
    help = (
        "Rebuild a store's read models from its log and compare all tables (exit code 12 if one of a sound file "
        "differs). A damaged file is rebuilt too, if its log can be read; the damaged file is kept."
    )
    is_slim = True

    interrupted = "interrupted; the read models are consistent, and the log is unchanged"

    def add_arguments(self, parser: CommandParser) -> None:
        add_store_options(parser, "in {}", "; default: the one of this folder")
        parser.add_argument(
            "--only",
            metavar="NAME,...",
            default="",
            help="replace only these tables or apps; ignored for a damaged file",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        only = [name.strip() for name in options["only"].split(",") if name.strip()]
        store = store_or_folders(options)
        total = None
        with suppress(Unavailable), use_store(store):  # if the store is too damaged to count
            total = log.head()[0]
        with progress_bar("rebuild", total) as progress:
            rebuilt = rebuild_store(store=store, progress=progress, only=only)
        report = rebuilt.report
        if rebuilt.problem:
            self.stdout.write(rebuilt.problem)
            self.stdout.write(f"the file was rebuilt from its log; previous file: {rebuilt.previous_file}")
        for table in report.tables:
            verdict = f"{table.after[:_DIGITS]}  identical"
            if not table.identical:
                verdict = f"{table.before[:_DIGITS]} → {table.after[:_DIGITS]}  DIFFERENT"
            note = "" if table.replaced else ", compared only"
            self.stdout.write(f"{table.table:<28} {table.rows:>9} rows  {verdict}{note}")
        # ``ru_maxrss`` is in KiB, on macOS in bytes
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
        rate = report.events / report.seconds if report.seconds else 0
        self.stdout.write(
            f"{counted(report.events, 'event')} applied in {report.seconds:.2f} s ({rate:,.0f} a second), "
            f"peak memory {peak:.0f} MB"
        )
        # Tables of a damaged file are expected to differ; they are repaired
        if not report.identical and not rebuilt.problem:
            sys.exit(EXIT_DIFFERENT)
