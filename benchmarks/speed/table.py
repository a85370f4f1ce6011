"""The results of a run, as JSON data and as a table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from itertools import groupby
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from benchmarks.speed.figures import Amount, Figure, Results
from benchmarks.speed.goals import Target, Verdict, targets_of, verdict_of

_STYLES = {Verdict.GOAL: "green", Verdict.FLOOR: "yellow", Verdict.MISS: "bold red"}
_COLUMNS = ("p50 or\nvalue", "p95", "p99", "without\nthe hub", "ratio", "floor", "goal")
_TITLES = {
    "start": "from the start of an mcp process",
    "tools": "what tools/list costs a context",
    "stores": "stores",
    "hook": "hooks",
}


def as_data(results: Results) -> dict[str, Any]:
    return {
        "machine": results.machine,
        "figures": [_figure(figure) for figure in results.figures],
        "failures": [asdict(failure) for failure in results.failures],
    }


def _figure(figure: Figure) -> dict[str, Any]:
    data = {
        "key": figure.key,
        "label": figure.label,
        "size": figure.size,
        "unit": str(figure.unit),
        **_amount(figure.amount),
        "baseline": {"what": figure.baseline_label, **_amount(figure.baseline)} if figure.baseline else None,
        "ratio": figure.ratio,
        "targets": [asdict(target) for target in targets_of(figure)],
        "verdict": verdict_of(figure),
    }
    return {name: value for name, value in data.items() if value is not None}


def _amount(amount: Amount) -> dict[str, float]:
    if amount.p95 is None or amount.p99 is None or amount.best is None:
        return {"value": amount.value, "samples": amount.samples}
    percentiles = {"best": amount.best, "p50": amount.value, "p95": amount.p95, "p99": amount.p99}
    return {**percentiles, "samples": amount.samples}


def render(results: Results) -> RenderableType:
    parts: list[RenderableType] = [Text(_machine(results))]
    parts += [_figures(title, list(figures)) for title, figures in groupby(results.figures, key=_section)]
    for failure in results.failures:
        at = f" at {failure.size:,} memories" if failure.size else ""
        parts.append(Text(f"FAILED {failure.key}{at}: {failure.reason}", style="bold red"))
    return Group(*parts, Text(_summary(results)))


def _machine(results: Results) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in results.machine.items()) + "\n"


def _section(figure: Figure) -> str:
    return f"{figure.size:,} memories in the store" if figure.size else _TITLES[figure.key.partition(".")[0]]


def _figures(title: str, figures: list[Figure]) -> Table:
    rows = [list(_cells(figure)) for figure in figures]
    used = [index for index in range(len(_COLUMNS)) if any(row[index] for row in rows)]
    table = Table(title=title, title_justify="left", title_style="bold", header_style="", box=SIMPLE_HEAD)
    table.padding = (0, 1, 0, 0)
    table.add_column("", overflow="fold", min_width=20)
    for index in used:
        table.add_column(_COLUMNS[index], justify="right", no_wrap=True)
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


def _summary(results: Results) -> str:
    verdicts = [verdict for figure in results.figures if (verdict := verdict_of(figure))]
    counts = {verdict: verdicts.count(verdict) for verdict in Verdict}
    counted = (
        f"{counts[Verdict.GOAL]} meet their goal, {counts[Verdict.FLOOR]} their floor, {counts[Verdict.MISS]} miss it"
    )
    return f"{len(results.figures)} figures: {counted}; {len(results.failures)} failed"
