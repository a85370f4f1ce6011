"""Make a project's read models anew from its log."""

from __future__ import annotations

import sys
from typing import Any

from memoryhub.core import log
from memoryhub.core.commands import ProjectCommand

EXIT_DIFFERENT = 12


class Command(ProjectCommand):
    """``memory-hub rebuild``."""

    help = "Empty a project's read models, apply its log again, and compare every table (exit code 12 if one differs)."

    def handle(self, *args: Any, **options: Any) -> None:
        """Print a line a table."""
        with self.store(options):
            report = log.rebuild()
        for table in report.tables:
            verdict = "identical" if table.identical else "DIFFERENT"
            self.stdout.write(f"{table.table:<28} {table.rows:>9} rows  {table.after[:12]}  {verdict}")
        rate = report.events / report.seconds if report.seconds else 0
        self.stdout.write(f"{report.events} events applied in {report.seconds:.2f} s ({rate:,.0f} a second)")
        if not report.identical:
            sys.exit(EXIT_DIFFERENT)
