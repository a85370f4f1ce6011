from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from memories.memtest import FILE_NAME, Outcome, read_tests, run_tests
from memoryhub.core.text import flat
from memoryhub.management.base import Group, ProjectCommand, Refusal


class Command(ProjectCommand):
    help = "Run the tests in memory.tests.yml: what searches must find and context packs must include. For CI."
    group = Group.CONTENT
    is_slim = True
    reads = True

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("file", metavar="FILE", nargs="?", default=FILE_NAME, help="default: %(default)s")

    def handle(self, *args: Any, **options: Any) -> None:
        tests = read_tests(Path(options["file"]))
        with self.store(options):
            outcomes = list(run_tests(tests))
        failed = sum(not outcome.passed for outcome in outcomes)
        data = {"passed": len(outcomes) - failed, "failed": failed, "results": outcomes}
        self.answer(data, [*_lines(outcomes), f"{len(outcomes) - failed} of {len(outcomes)} passed"])
        if failed:
            raise Refusal(f"{failed} of {len(tests.tests)} failed", returncode=1)


def _lines(outcomes: list[Outcome]) -> Iterator[str]:
    for outcome in outcomes:
        yield f"{'ok' if outcome.passed else 'FAILED'}  {flat(outcome.title)}"
        yield from (f"        {flat(fault)}" for fault in outcome.faults)
