from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from django.core.management.base import CommandParser

from decisions.selectors import decision_checks
from governance.imports import find_batch, imported_memories
from memories.memtest import (
    FILE_NAME,
    CheckRequest,
    MemoryTest,
    MemoryTestResult,
    read_tests,
    run_entry_checks,
    run_tests,
    withdraw_removed,
    write_sample,
)
from memories.models import Memory
from memories.validity.check_runs import CheckedTree
from memories.validity.checks import EntryCheck, allow_check, is_allowed, memory_checks, states_of
from memoryhub.core.errors import Invalid, NotFound, Unavailable
from memoryhub.core.text import counted, flat
from memoryhub.management.base import CommandRefusal, ProjectCommand, entity_id


class Command(ProjectCommand):
    help = "Run the tests in memory.tests.yml and the checks of entries: what memory must return, and what proves it."
    reads = True

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("file", metavar="FILE", nargs="?", default=FILE_NAME, help="default: %(default)s")
        acts = parser.add_mutually_exclusive_group()
        acts.add_argument(
            "--run",
            action="store_true",
            help="also start commands: those of the file, and those of entries that a person allowed",
        )
        acts.add_argument(
            "--allow", metavar="ID", type=entity_id, help="show the command of this entry, and ask whether it may run"
        )
        acts.add_argument("--write", action="store_true", help="write tests of a sample of memories to a new file")
        parser.add_argument("--from-import", metavar="N", type=entity_id, help="with --write: only of this import")

        parser.add_argument("--junit", metavar="FILE", type=Path, help="also write the results to this JUnit XML file")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["from_import"] and not options["write"]:
            raise Invalid("--from-import needs --write")
        if report := options["junit"]:
            if options["write"] or options["allow"]:
                raise Invalid("--junit is for the results of tests; leave out --write and --allow")
            # Before commands run
            if report.is_dir() or not report.absolute().parent.is_dir():
                raise Invalid(f"{report} cannot be written: name a file in a folder that exists")
        path = Path(options["file"])
        if options["write"]:
            with self.store(options):
                self._write(path, options["from_import"])
        elif options["allow"]:
            with self.store(options):
                self._allow(options["allow"])
        else:
            self._test(path, options)

    def _test(self, path: Path, options: dict[str, Any]) -> None:
        tests: list[MemoryTest] = []
        missing: NotFound | None = None
        try:
            tests = read_tests(path).tests
        except NotFound as error:
            missing = error
        with self.store(options):
            entries = [*memory_checks(), *decision_checks()]
            if missing and (options["file"] != FILE_NAME or not entries):
                raise missing
            file = "" if missing else path.name
            request = CheckRequest(CheckedTree(path.absolute().parent), options["run"], file)
            results = [*run_tests(tests, request), *run_entry_checks(entries, request)]
            withdraw_removed(tests, entries, request)
        if options["junit"]:
            write_junit(options["junit"], path.name, results)
        self._report(results)

    def _report(self, results: list[MemoryTestResult]) -> None:
        failed = sum(bool(result.faults) for result in results)
        not_run = sum(bool(result.not_run) for result in results)
        passed = len(results) - failed - not_run
        lines = []
        for result in results:
            word = "not run" if result.not_run else "FAILED"
            lines.append(f"{'ok' if result.passed else word}  {flat(result.title)}")
            lines += [f"        {flat(line)}" for line in (result.not_run, *result.faults, *result.output) if line]
        summary = f"{passed} of {len(results)} passed"
        if not_run:
            summary += f", {not_run} not run"
        data = {"passed": passed, "failed": failed, "not_run": not_run, "results": results}
        self.answer(data, [*lines, summary])
        if failed:
            raise CommandRefusal(f"{failed} of {len(results)} failed", returncode=1)

    def _allow(self, number: int) -> None:
        entries = [*memory_checks([number]), *decision_checks(number)]
        commands = [entry for entry in entries if entry.check.command]
        if not commands:
            raise NotFound(f"no check of #{number} is a command; patterns run without permission", id=number)
        states = states_of(commands)
        lines = []
        for entry in commands:
            if is_allowed(entry, states.get(entry.key)):
                lines.append(f"allowed already: {entry.check.text}")
            elif self._is_confirmed(entry):
                allow_check(entry)
                lines.append(f"allowed: {entry.check.text}; memtest --run starts it")
            else:
                lines.append(f"not allowed: {entry.check.text}")
        self.answer({"results": lines}, lines)

    # On the terminal itself: neither a pipe nor a client's shell answers for a person
    def _is_confirmed(self, entry: EntryCheck) -> bool:
        if not sys.stdin.isatty():
            raise Invalid("--allow asks on a terminal; run it there, or use the button on the entry's page")
        self.stderr.write(flat(f"#{entry.entity_id} {entry.title}"), style_func=str)
        self.stderr.write(f"    {entry.check.text}", style_func=str)
        self.stderr.write("It will run in this project's folder, with your rights.", style_func=str)
        return self.confirm("Allow this command?")

    def _write(self, path: Path, batch: int | None) -> None:
        memories = imported_memories(find_batch(batch)) if batch else Memory.objects.live()
        sample = write_sample(path, memories)
        lines = [f"wrote {counted(len(sample.tests), 'test')} to {path}"]
        lines += [f"left out, since words of its text do not find it: {flat(title)}" for title in sample.not_found]
        self.answer(sample, lines)


# Characters that XML does not allow
_NO_XML = re.compile("[^\\t\\n\\r\\x20-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")


def write_junit(report: Path, file: str, results: list[MemoryTestResult]) -> None:
    """Write results as JUnit XML, which CI services show beside the tests of the code.

    Raises:
        Unavailable: the file cannot be written.
    """
    failed = sum(bool(result.faults) for result in results)
    not_run = sum(bool(result.not_run) for result in results)
    counts = {"tests": str(len(results)), "failures": str(failed), "errors": "0", "skipped": str(not_run)}
    suites = ElementTree.Element("testsuites", counts)
    suite = ElementTree.SubElement(suites, "testsuite", {"name": "memory-hub memtest", **counts})
    for result in results:
        case = ElementTree.SubElement(suite, "testcase", {"classname": file, "name": _plain(result.title)})
        if result.faults:
            failure = ElementTree.SubElement(case, "failure", {"message": _plain(result.faults[0])})
            failure.text = "\n".join(map(_plain, (*result.faults, *result.output)))
        elif result.not_run:
            ElementTree.SubElement(case, "skipped", {"message": _plain(result.not_run)})
    try:
        ElementTree.ElementTree(suites).write(report, encoding="utf-8", xml_declaration=True)
    except OSError as error:
        raise Unavailable(f"{report} cannot be written: {error.strerror}") from error


def _plain(text: str) -> str:
    return _NO_XML.sub("\ufffd", flat(text))
