from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from benchmarks.quality.goals import targets_of, verdicts
from benchmarks.quality.run import SetResult, StageResult
from benchmarks.quality.scores import Means

_COLUMNS = {"recall_5": "R@5", "recall_10": "R@10", "mrr": "MRR", "session_5": "session\nhit@5"}


def as_data(results: Sequence[SetResult], machine: Mapping[str, Any]) -> dict[str, Any]:
    return {"machine": dict(machine), "sets": [_set_data(result) for result in results]}


def _set_data(result: SetResult) -> dict[str, Any]:
    last = result.stages[-1]
    return {
        "key": result.set.key,
        "label": result.set.label,
        "documents": result.set.documents,
        "stages": [_stage_data(stage) for stage in result.stages],
        "targets": {name: asdict(target) for name, target in targets_of(result.set.key, last.stage).items()},
        "verdicts": verdicts(result.set.key, last.stage, last.all),
        "milliseconds": asdict(result.cost.milliseconds),
        "tokens": result.cost.tokens,
    }


def _stage_data(result: StageResult) -> dict[str, Any]:
    return {
        "key": result.stage.key,
        "label": result.stage.label,
        "pipeline": asdict(result.stage.pipeline),
        "all": asdict(result.all),
        "halves": [asdict(half) for half in result.halves],
        "categories": {name: asdict(found) for name, found in result.categories.items()},
    }


def render(results: Sequence[SetResult]) -> RenderableType:
    return Group(*(part for result in results for part in _parts(result)))


def _parts(result: SetResult) -> Iterator[RenderableType]:
    title = f"{result.set.label}: {result.set.documents:,} documents, {len(result.set.questions):,} questions"
    yield _stages(title, result.stages)
    yield _categories(result.stages[-1])
    last = result.stages[-1]
    for name, verdict in verdicts(result.set.key, last.stage, last.all).items():
        target, value = targets_of(result.set.key, last.stage)[name], getattr(last.all, name)
        floor = f", floor {target.floor:.2f}" if target.floor is not None else ""
        label = _COLUMNS[name].replace("\n", " ")
        yield Text(f"{label} {value:.3f}: {verdict} (goal {target.goal:.2f}{floor})")
    cost = result.cost
    yield Text(
        f"an answer of ten: p50 {cost.milliseconds.value:.1f} ms, p95 {cost.milliseconds.p95:.1f} ms, "
        f"{cost.tokens:.0f} tokens\n"
    )


def _table(title: str, first: str, columns: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", header_style="", box=SIMPLE_HEAD)
    table.add_column(first, overflow="fold")
    for heading in columns:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _stages(title: str, stages: Sequence[StageResult]) -> Table:
    table = _table(title, "ranked by", [*_COLUMNS.values(), "R@5 of\nhalves", "R@10 of\nhalves"])
    for result in stages:
        halves = ["/".join(_short(getattr(half, name)) for half in result.halves) for name in ("recall_5", "recall_10")]
        table.add_row(result.stage.label, *_cells(result.all), *halves)
    return table


def _categories(result: StageResult) -> RenderableType:
    if len(result.categories) < 2:
        return Text("")
    table = _table("by category", "", ["questions", *_COLUMNS.values()])
    for name, found in result.categories.items():
        table.add_row(name, str(found.questions), *_cells(found))
    return table


def _cells(found: Means) -> list[str]:
    return ["" if (value := getattr(found, name)) is None else _short(value) for name in _COLUMNS]


def _short(value: float) -> str:
    return f"{value:.3f}".removeprefix("0")
