from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from memoryhub import __version__
from memoryhub.config.repository import resolved, working_folder
from memoryhub.core.errors import Invalid, NotFound
from memoryhub.core.text import counted, flat
from memoryhub.management.base import ProjectCommand
from memoryhub.transfer.changes.committed import committed_changes
from memoryhub.transfer.changes.markdown import markdown_report
from memoryhub.transfer.changes.report import ChangeReport
from memoryhub.transfer.changes.stored import stored_changes
from memoryhub.transfer.changes.verdicts import VerdictStep, accept_changes, drop_changes
from sessions_app.git.ranges import CommitRange, find_range

_WORKFLOWS = ("github", "gitlab")


class Command(ProjectCommand):
    help = (
        "Show what agents learnt on a branch, as Markdown for a pull request: memories and decisions that were added, "
        "changed and removed, by whom, in which session, and the code that they are about."
    )
    reads = True

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("range", metavar="BASE..HEAD", nargs="?", help="commits, such as main..HEAD")
        parser.add_argument(
            "--mirror",
            metavar="DIR",
            type=Path,
            help="of this mirrored folder of the repository; no store is needed",
        )
        acts = parser.add_mutually_exclusive_group()
        acts.add_argument("--accept", action="store_true", help="after a merge: accept it in the store, as a person")
        acts.add_argument("--drop", action="store_true", help="of a closed branch: take it back in the store")
        acts.add_argument("--workflow", choices=_WORKFLOWS, help="print a workflow file that comments on pull requests")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["workflow"]:
            self.stdout.utf8.write(_workflow(options["workflow"]))
            return
        if options["range"] is None:
            raise Invalid("name a range of commits, such as main..HEAD")
        if options["drop"] and options["mirror"]:
            raise Invalid("--drop takes back what the store learnt; leave out --mirror")
        span = find_range(working_folder(), options["range"])
        with ExitStack() as stack:
            if options["mirror"] and not options["accept"]:
                stack.enter_context(self.store_or_none(options))
            else:
                self._open_store(stack, options)
            report = self._report(span, options["mirror"])
            if options["accept"] or options["drop"]:
                act = accept_changes if options["accept"] else drop_changes
                steps = act(report)
                self.answer({"range": report.range, "results": steps}, _step_lines(steps))
                return
        self.answer(_data(report), [markdown_report(report)])

    def _open_store(self, stack: ExitStack, options: dict[str, Any]) -> None:
        try:
            stack.enter_context(self.store(options))
        except NotFound as error:
            raise NotFound(f"{error.message}; or compare a mirrored folder with --mirror DIR") from error

    def _report(self, span: CommitRange, mirror: Path | None) -> ChangeReport:
        if mirror is None:
            return stored_changes(span)
        folder = resolved(mirror.expanduser().absolute())
        if not folder.is_relative_to(span.top):
            raise Invalid(f"{folder} is not in the repository {span.top}; name a folder of it")
        return committed_changes(span, str(folder.relative_to(span.top)).removeprefix("."))


def _workflow(name: str) -> str:
    path = Path(__file__).parents[2] / "transfer" / "changes" / f"{name}.yml"
    return path.read_text("utf-8").replace("VERSION", __version__)


def _data(report: ChangeReport) -> dict[str, Any]:
    return {**asdict(report), "counts": report.counts}


def _step_lines(steps: list[VerdictStep]) -> Iterator[str]:
    for step in steps:
        number = f"#{step.id} " if step.id else ""
        yield flat(f"{step.did}  {number}{step.title}{f': {step.why}' if step.why else ''}")
    settled = sum(step.did != "left" for step in steps)
    yield f"{counted(settled, 'entry', 'entries')} of {len(steps)} settled"
