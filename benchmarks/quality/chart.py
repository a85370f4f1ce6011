"""The results as an SVG: one bar per stage, with recall at 5 inside recall at 10, and the goals as lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from benchmarks.quality.goals import targets_of
from benchmarks.quality.run import SetResult, StageResult

_WIDTH, _LEFT, _SCALE = 760, 270, 440
_ROW, _BAR, _HEAD, _FOOT = 24, 15, 46, 14
_STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1f2328 } .quiet { fill: #656d76; font-size: 12px }
.title { font-weight: 600; font-size: 14px } .ten { fill: #b6d4fe } .five { fill: #2563eb }
.goal { stroke: #15803d; stroke-width: 1.5; stroke-dasharray: 3 3 }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .quiet { fill: #9198a1 } .ten { fill: #1e3a6e }
.five { fill: #6ea8fe } .goal { stroke: #4ade80 } }
"""


def svg(results: Sequence[SetResult]) -> str:
    parts, top = [], 0
    for result in results:
        parts.append(f'<g transform="translate(0 {top})">{"".join(_set(result))}</g>')
        top += _HEAD + _ROW * len(result.stages) + _FOOT
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {top}" role="img" aria-labelledby="t d">'
        f'<title id="t">Recall of each stage of a search</title><desc id="d">{escape(_description(results))}</desc>'
        f"<style>{_STYLE}</style>{''.join(parts)}</svg>\n"
    )


def _set(result: SetResult) -> Iterator[str]:
    count = f"{result.set.documents:,} documents, {len(result.set.questions):,} questions"
    yield f'<text class="title" x="0" y="16">{escape(result.set.label)}</text>'
    yield f'<text class="quiet" x="0" y="34">{count}; dark: recall at 5, light: at 10, dashed: goals</text>'
    for index, stage in enumerate(result.stages):
        yield from _stage(stage, _HEAD + index * _ROW)
    bottom = _HEAD + _ROW * len(result.stages)
    for name, target in targets_of(result.set.key, result.stages[-1].stage).items():
        if name.startswith("recall"):
            x = _x(target.goal)
            yield f'<line class="goal" x1="{x}" y1="{_HEAD - 4}" x2="{x}" y2="{bottom - 4}"/>'


def _stage(result: StageResult, top: int) -> Iterator[str]:
    five, ten = result.all.recall_5, result.all.recall_10
    text = top + _BAR - 3
    yield f'<text x="0" y="{text}">{escape(result.stage.label)}</text>'
    yield f'<rect class="ten" x="{_LEFT}" y="{top}" width="{_x(ten) - _LEFT}" height="{_BAR}" rx="2"/>'
    yield f'<rect class="five" x="{_LEFT}" y="{top + 4}" width="{_x(five) - _LEFT}" height="{_BAR - 8}" rx="2"/>'
    yield f'<text class="quiet" x="{_x(ten) + 6}" y="{text}">{five:.3f} / {ten:.3f}</text>'


def _x(value: float) -> int:
    return round(_LEFT + _SCALE * value)


def _description(results: Sequence[SetResult]) -> str:
    return "; ".join(
        f"{result.set.label}: recall at 5 from {result.stages[0].all.recall_5:.3f} to "
        f"{result.stages[-1].all.recall_5:.3f}, at 10 from {result.stages[0].all.recall_10:.3f} to "
        f"{result.stages[-1].all.recall_10:.3f}"
        for result in results
    )
