from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from governance.imports import find_batch, imported_memories
from memories.memtest import FILE_NAME, read_tests, run_tests, write_sample
from memories.models import Memory
from memoryhub.core.errors import Invalid
from memoryhub.core.text import counted, flat
from memoryhub.management.base import CommandRefusal, ProjectCommand, entity_id


class Command(ProjectCommand):
    help = "Run the tests in memory.tests.yml: what searches must find and context packs must include. For CI."
    reads = True

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("file", metavar="FILE", nargs="?", default=FILE_NAME, help="default: %(default)s")
        parser.add_argument("--write", action="store_true", help="write tests of a sample of memories to a new file")
        parser.add_argument("--from-import", metavar="N", type=entity_id, help="with --write: only of this import")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["from_import"] and not options["write"]:
            raise Invalid("--from-import needs --write")
        if options["write"]:
            with self.store(options):
                self._write(Path(options["file"]), options["from_import"])
            return
        tests = read_tests(Path(options["file"]))
        with self.store(options):
            outcomes = list(run_tests(tests))
        failed = sum(not outcome.passed for outcome in outcomes)
        data = {"passed": len(outcomes) - failed, "failed": failed, "results": outcomes}
        lines = []
        for outcome in outcomes:
            lines.append(f"{'ok' if outcome.passed else 'FAILED'}  {flat(outcome.title)}")
            lines += [f"        {flat(fault)}" for fault in outcome.faults]
        self.answer(data, [*lines, f"{len(outcomes) - failed} of {len(outcomes)} passed"])
        if failed:
            raise CommandRefusal(f"{failed} of {len(tests.tests)} failed", returncode=1)

    def _write(self, path: Path, batch: int | None) -> None:
        memories = imported_memories(find_batch(batch)) if batch else Memory.objects.live()
        sample = write_sample(path, memories)
        lines = [f"wrote {counted(len(sample.tests), 'test')} to {path}"]
        lines += [f"left out, since words of its text do not find it: {flat(title)}" for title in sample.not_found]
        self.answer(sample, lines)
