"""What the commands ``start`` and ``import`` share: show a plan, import it, and say what it brought."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

from governance.imports import counts_text
from memoryhub.core import clock
from memoryhub.core.autostart import start_in_background
from memoryhub.core.text import counted, flat
from memoryhub.management.base import HubCommand, progress_bar, use_cli_origin
from memoryhub.transfer.records import reason_lines
from memoryhub.transfer.start import StartResult, run_start
from memoryhub.transfer.start_plan import PlanPart, StartPlan

_MOST_LEFT_OUT, _MOST_WARNINGS = 3, 10
_MEGABYTE = 1_000_000


def plan_lines(plan: StartPlan) -> Iterator[str]:
    """Yield a line for each part of a plan, and for what it leaves out."""
    yield flat(f"{plan.project}: {plan.folder}")
    if plan.hint:
        yield flat(f"  note: {plan.hint}")
    if not plan.parts:
        yield "  nothing new to import"
    width = max((len(part.text) for part in plan.parts), default=0)
    for part in plan.parts:
        yield flat(f"  {part.text:>{width}}  {', '.join(_details(part))}")
    for remark in plan.remarks:
        yield flat(f"  not taken: {remark}")


def _details(part: PlanPart) -> Iterator[str]:
    if part.title:
        yield part.title
    if part.size:
        yield f"{max(part.size / _MEGABYTE, 0.1):,.1f} MB"
    if part.newest:
        yield f"newest {clock.day(part.newest)}"


def is_wanted(command: HubCommand, question: str, *, is_yes: bool) -> bool:
    """Ask a person at the terminal; elsewhere nothing is done without ``--yes``."""
    if is_yes:
        return True
    if not sys.stdin.isatty():
        command.stdout.write("nothing was changed; add --yes")
        return False
    return command.confirm(question)


def import_plan(command: HubCommand, plan: StartPlan, *, seconds: float | None = None) -> None:
    """Import a plan with a progress bar, and print what it brought and how to undo it.

    What is not imported after ``seconds`` goes on in the background.
    """
    begin = time.monotonic()
    with use_cli_origin(), progress_bar("entries", plan.total) as advance:
        result = run_start(plan, progress=advance, seconds=seconds)
    if result.batch is None:
        command.stdout.write("Nothing was new.")
    else:
        command.stdout.write(
            f"Imported {counts_text(result.counts)} in {time.monotonic() - begin:.0f} s. To undo it: "
            f"memory-hub import undo {result.batch} --project {plan.project}"
        )
    if not result.is_complete:
        start_in_background(
            "start", "--continue", str(result.batch), "--project", plan.project, folder=str(plan.folder)
        )
        command.stdout.write("The rest follows in the background.")
    if result.lessons:
        lessons = counted(result.lessons, "lesson")
        command.stdout.write(f"Proposed {lessons} of your sessions, for your review: memory-hub open {plan.project}")
    if result.secrets:
        kinds = ", ".join(f"{count} {name}" for name, count in result.secrets.most_common())
        command.stdout.write(flat(f"Masked on the way in: {kinds}"))
    for line in _left_out_lines(result):
        command.stderr.write(line)


def _left_out_lines(result: StartResult) -> Iterator[str]:
    yield from map(flat, result.warnings[:_MOST_WARNINGS])
    if len(result.warnings) > _MOST_WARNINGS:
        yield f"and {len(result.warnings) - _MOST_WARNINGS} more that are left out"
    yield from reason_lines(result.left_out, most=_MOST_LEFT_OUT)
