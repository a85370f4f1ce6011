from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from memories.memtest import FILE_NAME, read_tests, run_tests
from memoryhub.core.text import flat
from memoryhub.management.base import ProjectCommand, Refusal


class Command(ProjectCommand):
    help = "Run the tests in memory.tests.yml: what searches must find and context packs must include. For CI."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("file", metavar="FILE", nargs="?", default=FILE_NAME, help="default: %(default)s")

    def handle(self, *args: Any, **options: Any) -> None:
        tests = read_tests(Path(options["file"]))
        failed = 0
        with self.store(options):
            for outcome in run_tests(tests):
                failed += not outcome.passed
                self.stdout.write(f"{'ok' if outcome.passed else 'FAILED'}  {flat(outcome.title)}")
                for fault in outcome.faults:
                    self.stdout.write(f"        {flat(fault)}")
        self.stdout.write(f"{len(tests.tests) - failed} of {len(tests.tests)} passed")
        if failed:
            raise Refusal(f"{failed} of {len(tests.tests)} failed", returncode=1)
