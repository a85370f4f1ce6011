from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from benchmarks.speed.figures import Figure, ProfileRow, Results
from benchmarks.speed.goals import Target, Verdict, targets_of, verdict_of

_STYLES = {Verdict.GOAL: "green", Verdict.FLOOR: "yellow", Verdict.MISS: "bold red"}
_COLUMNS = ("p50 or\nvalue", "p95", "p99", "without\nthe hub", "ratio", "floor", "goal")
_TITLES = {
    "start": "from the start of an mcp process",
    "tools": "what tools/list costs a context",
    "stores": "stores",
    "hook": "hooks",
}
_PROFILE_COLUMNS = ("calls", "own ms", "ms in all")


def render(results: Results) -> RenderableType:
    parts: list[RenderableType] = [Text(_machine(results))]
    parts += [_figures(title, list(figures)) for title, figures in groupby(results.figures, key=_section)]
    for failure in results.failures:
        at = f" at {failure.size:,} memories" if failure.size else ""
        parts.append(Text(f"FAILED {failure.key}{at}: {failure.reason}", style="bold red"))
    if results.profile:
        parts.append(_profile(results.profile))
    return Group(*parts, Text(_summary(results)))


def _machine(results: Results) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in results.machine.items()) + "\n"


def _section(figure: Figure) -> str:
    return f"{figure.size:,} memories in the store" if figure.size else _TITLES[figure.key.partition(".")[0]]


def _table(title: str, first: str, columns: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", header_style="", box=SIMPLE_HEAD)
    table.padding = (0, 1, 0, 0)
    table.add_column(first, overflow="fold", min_width=20)
    for heading in columns:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _figures(title: str, figures: list[Figure]) -> Table:
    rows = [list(_cells(figure)) for figure in figures]
    used = [index for index in range(len(_COLUMNS)) if any(row[index] for row in rows)]
    table = _table(title, "", [_COLUMNS[index] for index in used])
    table.add_column("met", no_wrap=True)
    for figure, row in zip(figures, rows, strict=True):
        verdict = verdict_of(figure)
        met = Text(verdict, style=_STYLES[verdict]) if verdict else ""
        table.add_row(f"{figure.label}, {figure.unit}", *(row[index] for index in used), met)
    return table


def _cells(figure: Figure) -> Iterator[str]:
    amount, baseline = figure.amount, figure.baseline
    for value in (amount.value, amount.p95, amount.p99, baseline.value if baseline else None):
        yield "" if value is None else _short(value)
    yield "" if figure.ratio is None else f"{_short(figure.ratio)}×"
    targets = targets_of(figure)
    yield "/".join(_target(target, target.floor) for target in targets)
    yield "/".join(_target(target, target.goal) for target in targets)


def _target(target: Target, amount: float) -> str:
    return f"{_short(amount)}{'×' if target.on == 'ratio' else ''}"


def _short(amount: float) -> str:
    if amount == int(amount) or amount >= 100:
        return f"{amount:,.0f}"
    if amount >= 10:
        return f"{amount:.1f}"
    return f"{amount:.2f}" if amount >= 0.1 else f"{amount:.3f}"


def _profile(rows: list[ProfileRow]) -> Table:
    title = "500 writes in the service: the functions that took longest by themselves"
    table = _table(title, "", _PROFILE_COLUMNS)
    for row in rows:
        milliseconds = (f"{1000 * seconds:,.1f}" for seconds in (row.own_seconds, row.total_seconds))
        table.add_row(row.function, f"{row.calls:,}", *milliseconds)
    return table


def _summary(results: Results) -> str:
    verdicts = [verdict for figure in results.figures if (verdict := verdict_of(figure))]
    counts = {verdict: verdicts.count(verdict) for verdict in Verdict}
    counted = (
        f"{counts[Verdict.GOAL]} meet their goal, {counts[Verdict.FLOOR]} their floor, {counts[Verdict.MISS]} miss it"
    )
    return f"{len(results.figures)} figures: {counted}; {len(results.failures)} failed"
