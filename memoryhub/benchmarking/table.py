"""The results as tables, for people."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from memoryhub.benchmarking.figures import Figure, ProfileRow, Results, Unit
from memoryhub.benchmarking.goals import Target, Verdict, targets_of, verdict_of

_STYLES = {Verdict.GOAL: "green", Verdict.FLOOR: "yellow", Verdict.MISS: "bold red"}
_COLUMNS = ("p50 or value", "p95", "p99", "without the hub", "ratio", "floor", "goal")
_NARROW_COLUMNS = ("calls", "own", "in all")


def render(results: Results) -> RenderableType:
    """Return the machine, a table of figures and verdicts, what failed, and the profile where one was taken."""
    parts: list[RenderableType] = [Text(_machine(results)), _figures(results.figures)]
    for failure in results.failures:
        at = f" at {failure.size:,}" if failure.size else ""
        parts.append(Text(f"FAILED {failure.key}{at}: {failure.reason}", style="bold red"))
    if results.profile:
        parts.append(_profile(results.profile))
    return Group(*parts, Text(_summary(results)))


def _machine(results: Results) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in results.machine.items())


def _figures(figures: list[Figure]) -> Table:
    table = Table(header_style="bold")
    table.add_column("figure", overflow="fold")
    table.add_column("memories", justify="right")
    for heading in _COLUMNS:
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for _, group in groupby(figures, key=_section):
        for figure in group:
            table.add_row(*_cells(figure))
        table.add_section()
    return table


def _section(figure: Figure) -> tuple[int, str]:
    return figure.size or 0, "" if figure.size else figure.key.partition(".")[0]


def _cells(figure: Figure) -> Iterator[str | Text]:
    amount, unit = figure.amount, figure.unit
    yield figure.label
    yield f"{figure.size:,}" if figure.size else ""
    yield _with_unit(amount.value, unit)
    yield "" if amount.p95 is None else _with_unit(amount.p95, unit)
    yield "" if amount.p99 is None else _with_unit(amount.p99, unit)
    yield "" if figure.baseline is None else _with_unit(figure.baseline.value, unit)
    yield "" if figure.ratio is None else f"{_short(figure.ratio)} ×"
    targets, verdict = targets_of(figure), verdict_of(figure)
    yield " / ".join(_target(target, target.floor, unit) for target in targets)
    yield " / ".join(_target(target, target.goal, unit) for target in targets)
    yield Text(verdict, style=_STYLES[verdict]) if verdict else ""


def _target(target: Target, amount: float, unit: Unit) -> str:
    return f"{_short(amount)} ×" if target.on == "ratio" else _with_unit(amount, unit)


def _with_unit(amount: float, unit: Unit) -> str:
    if unit is Unit.BYTES and amount >= 1e6:
        return f"{_short(amount / 1e6)} MB"
    return f"{_short(amount)}{'' if unit is Unit.PER_SECOND else ' '}{unit}"


def _short(amount: float) -> str:
    """Return three telling digits; whole numbers as they are."""
    if amount == int(amount) or amount >= 100:
        return f"{amount:,.0f}"
    if amount >= 10:
        return f"{amount:.1f}"
    return f"{amount:.2f}" if amount >= 1 else f"{amount:.3f}"


def _profile(rows: list[ProfileRow]) -> Table:
    table = Table(title="a write in the service: the functions that took longest by themselves", header_style="bold")
    table.add_column("function", overflow="fold")
    for heading in _NARROW_COLUMNS:
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            row.function, f"{row.calls:,}", f"{1000 * row.own_seconds:.1f} ms", f"{1000 * row.total_seconds:.1f} ms"
        )
    return table


def _summary(results: Results) -> str:
    verdicts = [verdict for figure in results.figures if (verdict := verdict_of(figure))]
    counts = {verdict: verdicts.count(verdict) for verdict in Verdict}
    said = [f"{count} {verdict}" for verdict, count in counts.items()]
    return f"{len(results.figures)} figures: {', '.join(said)}, {len(results.failures)} failed"
