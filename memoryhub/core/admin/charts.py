"""Charts as numbers for SVG templates, which need no script and no inline style."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date

WIDTH, HEIGHT, TOP = 600, 120, 14
_GAP = 4
_LABEL_EVERY = 7


@dataclass(frozen=True, slots=True)
class Bar:
    # In units of the SVG's view box
    x: float
    y: float
    width: float
    height: float
    label: date
    value: int
    is_labelled: bool

    @property
    def middle(self) -> float:
        return round(self.x + self.width / 2, 1)


@dataclass(frozen=True, slots=True)
class BarChart:
    bars: list[Bar]
    highest: int
    # One sentence, for screen readers
    description: str
    width: int = WIDTH
    height: int = HEIGHT

    @property
    def is_empty(self) -> bool:
        return self.highest == 0


def bar_chart(counts: Mapping[date, int], *, description: str, label_every: int = _LABEL_EVERY) -> BarChart:
    """Lay out one bar per day or week; every count above zero gets a visible bar."""
    highest = max(counts.values(), default=0)
    step = WIDTH / max(1, len(counts))
    last = len(counts) - 1
    bars = []
    for index, (label, value) in enumerate(counts.items()):
        height = round(max(2.0, (HEIGHT - TOP) * value / highest), 1) if value else 0.0
        x, width = round(index * step + _GAP / 2, 1), round(step - _GAP, 1)
        bars.append(Bar(x, HEIGHT - height, width, height, label, value, (last - index) % label_every == 0))
    return BarChart(bars, highest, description)


def change_widths(insertions: int | None, deletions: int | None, most: int, width: int = 80) -> tuple[float, float]:
    """Return the widths of a change's added and removed lines; ``most`` lines fill ``width``."""
    scale = width / max(1, most)
    return round((insertions or 0) * scale, 1), round((deletions or 0) * scale, 1)
