from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table

from benchmarks.quality.secrets.measures import Found, Mistakes
from benchmarks.quality.secrets.run import RivalResult, SecretsResult
from benchmarks.speed.goals import Verdict

_MOST_TYPES = 25
_SLOWEST = 6


@dataclass(frozen=True, slots=True)
class Goal:
    label: str
    value: float
    goal: float
    unit: str = "%"
    less_is_better: bool = False

    @property
    def verdict(self) -> Verdict:
        met = self.value <= self.goal if self.less_is_better else self.value >= self.goal
        return Verdict.GOAL if met else Verdict.MISS


def goals(result: SecretsResult) -> list[Goal]:
    mistakes = result.results[0].mistakes
    megabytes = sum(kind.megabytes for kind in mistakes)
    seconds = sum(kind.megabytes / kind.megabytes_a_second for kind in mistakes)
    last = result.windows[int(len(result.windows) * 0.99)]
    return [
        Goal("secrets found", 100 * result.raw.share, 88),
        Goal("… of those, after JSON escaping", 100 * result.escaped.share, 95),
        Goal("tokens with a known prefix, alone in a sentence", 100 * result.bare.share, 95),
        Goal(
            "false positives per megabyte",
            sum(kind.findings for kind in mistakes) / megabytes,
            2,
            "",
            less_is_better=True,
        ),
        Goal("megabytes per second", megabytes / seconds, 10, "MB/s"),
        Goal("64 KB, p99", last, 20, "ms", less_is_better=True),
    ]


def as_data(result: SecretsResult) -> dict[str, Any]:
    return {
        "samples": result.samples,
        "goals": [{**asdict(goal), "verdict": goal.verdict} for goal in goals(result)],
        "rivals": [_rival_data(rival_result) for rival_result in result.results],
        "escaped": asdict(result.escaped),
        "bare": asdict(result.bare),
        "windows_ms": {"p50": result.windows[len(result.windows) // 2], "max": result.windows[-1]},
        "worst_ms": result.worst,
    }


def _rival_data(result: RivalResult) -> dict[str, Any]:
    return {
        "key": result.rival.key,
        "label": result.rival.label,
        **asdict(result.recall),
        "mistakes": [asdict(kind) for kind in result.mistakes],
    }


def render(result: SecretsResult) -> RenderableType:
    return Group(*_parts(result))


def _parts(result: SecretsResult) -> Iterator[RenderableType]:
    yield _goals(result)
    yield _sources(result)
    yield _mistakes(result)
    yield _types(result)
    yield _worst(result)
    if not result.with_detect_secrets:
        yield "without detect-secrets: pip install detect-secrets"


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left")
    return table


def _goals(result: SecretsResult) -> Table:
    table = _table(f"Secrets: {result.samples:,} labelled texts", "figure", "measured", "goal", "")
    for goal in goals(result):
        sign = "≤" if goal.less_is_better else "≥"
        table.add_row(goal.label, f"{goal.value:.1f} {goal.unit}", f"{sign} {goal.goal:g} {goal.unit}", goal.verdict)
    return table


def _sources(result: SecretsResult) -> Table:
    labels = [rival_result.rival.label for rival_result in result.results]
    table = _table("Found, by source (clean: flagged, less is better)", "source", "texts", *labels)
    first = result.results[0].recall
    for name, found in first.by_source.items():
        table.add_row(
            name, f"{found.all:,}", *(_share(rival_result.recall.by_source[name]) for rival_result in result.results)
        )
    for name, found in first.flagged.items():
        table.add_row(
            f"clean: {name}",
            f"{found.all:,}",
            *(_share(rival_result.recall.flagged[name]) for rival_result in result.results),
        )
    return table


def _mistakes(result: SecretsResult) -> Table:
    labels = [rival_result.rival.label for rival_result in result.results]
    table = _table("Texts without secrets: findings per megabyte, MB/s", "kind", "files", "MB", *labels)
    for number, kind in enumerate(result.results[0].mistakes):
        cells = (_mistake(rival_result.mistakes[number]) for rival_result in result.results)
        table.add_row(kind.label, str(kind.files), f"{kind.megabytes:.1f}", *cells)
    return table


def _mistake(mistakes: Mistakes) -> str:
    return f"{mistakes.a_megabyte:.2f}  {mistakes.megabytes_a_second:.2f}"


def _types(result: SecretsResult) -> Table:
    by_type = result.results[0].recall.by_type
    missed = sorted(by_type.items(), key=lambda pair: pair[1].found - pair[1].all)
    table = _table("Types that the hub misses most", "type", "missed", "texts")
    for name, found in missed[:_MOST_TYPES]:
        if found.found < found.all:
            table.add_row(name, str(found.all - found.found), str(found.all))
    return table


def _worst(result: SecretsResult) -> Table:
    table = _table("Adversarial texts of 1 MB", "repeated", "ms")
    for name, milliseconds in list(result.worst.items())[:_SLOWEST]:
        table.add_row(repr(name), f"{milliseconds:,.0f}")
    return table


def _share(found: Found) -> str:
    return f"{100 * found.share:.1f} %"
