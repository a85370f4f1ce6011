from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.core.management.base import CommandParser

from memories.worth.report import worth_report
from memories.worth.schemas import Period, WorthReport, WorthRequest
from memoryhub.core.text import counted
from memoryhub.core.validation import command_from
from memoryhub.management.base import ProjectCommand


class Command(ProjectCommand):
    help = "Print what context packs cost, what became of them, and sessions with and without memory."
    reads = True
    is_asked_of_hub = True

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--period", choices=list(map(str, Period)), default="30d", help="how far back (default: %(default)s)"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        with self.store(options):
            report = worth_report(command=command_from(WorthRequest, options))
        self.answer(report, _worth_lines(report))


def _worth_lines(report: WorthReport) -> Iterator[str]:
    lines, judged, zombies = report.lines, report.judged, report.zombies
    packs, sessions = counted(report.packs, "pack"), counted(report.sessions, "session")
    yield f"{counted(report.tokens, 'token')} in {packs} to {sessions}"
    became = f"{lines.cited:,} cited, {lines.used:,} used, {lines.ignored:,} ignored"
    yield f"{lines.total:,} memories and decisions given: {became}"
    yield f"{judged.unused:,} of {counted(judged.ended, 'pack')} with nothing used, {judged.unused_tokens:,} tokens"
    for kind in report.kinds:
        became = f"{kind.shown:,} shown, {kind.followed:,} followed, {kind.ignored:,} ignored"
        off = "; switched off" if kind.is_off else ""
        yield f"  {kind.label}: {became}, {kind.contradicted:,} contradicted{off}"
    yield f"{counted(zombies.total, 'memory', 'memories')} in {zombies.least_packs} packs or more and never used"
    yield from (f"  #{item.id} {item.given}x, {item.tokens:,} tokens: {item.title}" for item in zombies.items)
    yield f"{report.never_given:,} of {counted(report.memories, 'memory', 'memories')} never in a pack"
    experiment = report.experiment
    if not experiment.measures:
        yield "no session held out; the setting held_out_percent holds some out"
    elif experiment.too_few:
        yield experiment.too_few
    else:
        yield f"sessions compared: {experiment.held_out} held out, {experiment.given} given"
        for measure in experiment.measures:
            means = f"  {measure.label}: {measure.held_out:.2f} held out, {measure.given:.2f} given"
            interval = ""
            if measure.low is not None:
                interval = f"{measure.difference:+.2f} ({measure.low:+.2f} to {measure.high:+.2f}), "
            yield f"{means}; {interval}{measure.reading.label.lower()}"
