from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from benchmarks.quality.goals import targets_of, verdicts
from benchmarks.quality.run import SetResult, StageResult
from benchmarks.quality.scores import Interval, Means

_COLUMNS = {
    "recall_5": "R@5",
    "recall_10": "R@10",
    "mrr": "MRR",
    "ndcg_10": "nDCG\n@10",
    "top_3": "top 3",
    "session_5": "session\nhit@5",
}


def as_data(results: Sequence[SetResult], machine: Mapping[str, Any]) -> dict[str, Any]:
    return {"machine": dict(machine), "sets": [_set_data(result) for result in results]}


def _set_data(result: SetResult) -> dict[str, Any]:
    last = result.stages[-1]
    return {
        "key": result.set.key,
        "label": result.set.label,
        "documents": result.set.documents,
        "stages": [_stage_data(stage) for stage in result.stages],
        "references": [_stage_data(stage) for stage in result.references],
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
        "recall_10_interval": result.recall_interval,
        "gain_interval": result.gain_interval,
    }


def render(results: Sequence[SetResult]) -> RenderableType:
    return Group(*(part for result in results for part in _parts(result)))


def _parts(result: SetResult) -> Iterator[RenderableType]:
    title = f"{result.set.label}: {result.set.documents:,} documents, {len(result.set.questions):,} questions"
    yield _stages(title, [*result.references, *result.stages])
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
    table = _table(title, "ranked by", [*_COLUMNS.values(), "R@10,\n95 %", "R@10,\ngain", "R@10 of\nhalves"])
    for result in _changing(stages):
        halves = "/".join(_short(half.recall_10) for half in result.halves)
        intervals = [_range(result.recall_interval), _range(result.gain_interval)]
        table.add_row(result.stage.label, *_cells(result.all), *intervals, halves)
    return table


# Without the stages that change nothing: most are about messages only
def _changing(stages: Sequence[StageResult]) -> Iterator[StageResult]:
    yield from stages[:1]
    yield from (result for before, result in pairwise(stages) if result.all != before.all)


def _categories(result: StageResult) -> RenderableType:
    if len(result.categories) < 2:
        return Text("")
    table = _table("by category", "", ["questions", *_COLUMNS.values()])
    for name, found in result.categories.items():
        table.add_row(name, str(found.questions), *_cells(found))
    return table


def _cells(found: Means) -> list[str]:
    return ["" if (value := getattr(found, name)) is None else _short(value) for name in _COLUMNS]


def _range(bounds: Interval | None) -> str:
    return "–".join(_short(bound) for bound in bounds) if bounds else ""


def _short(value: float) -> str:
    return f"{value:.3f}".replace("0.", ".", 1)
