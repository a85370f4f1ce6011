"""Charts and diagrams as numbers for SVG templates, which need no script and no inline style."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from itertools import chain, pairwise

CHART_WIDTH, CHART_HEIGHT, _CHART_TOP = 600, 120, 14
_BAR_GAP, _CHANGE_WIDTH = 4, 80
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
    width: int = CHART_WIDTH
    height: int = CHART_HEIGHT

    @property
    def is_empty(self) -> bool:
        return self.highest == 0


def bar_chart(counts: Mapping[date, int], *, description: str, label_every: int = _LABEL_EVERY) -> BarChart:
    """Lay out one bar per day or week; every count above zero gets a visible bar."""
    highest = max(counts.values(), default=0)
    step = CHART_WIDTH / max(1, len(counts))
    last = len(counts) - 1
    bars = []
    for index, (label, value) in enumerate(counts.items()):
        height = round(max(2.0, (CHART_HEIGHT - _CHART_TOP) * value / highest), 1) if value else 0.0
        x = round(index * step + _BAR_GAP / 2, 1)
        width = round(step - _BAR_GAP, 1)
        bars.append(Bar(x, CHART_HEIGHT - height, width, height, label, value, (last - index) % label_every == 0))
    return BarChart(bars, highest, description)


def change_widths(insertions: int | None, deletions: int | None, most: int) -> tuple[float, float]:
    """Return the widths of a change's added and removed lines; ``most`` lines fill the bar."""
    scale = _CHANGE_WIDTH / max(1, most)
    return round((insertions or 0) * scale, 1), round((deletions or 0) * scale, 1)


BOX_WIDTH, BOX_HEIGHT = 220, 66
_GAP_X, _GAP_Y, _LANE = 96, 18, 20
_MARGIN = 12
_LINE_CHARACTERS, _LINES = 27, 2
_LABEL_HEIGHT = 15
_SWEEPS = 4
# How far a line between two boxes of one column bends out
_ARC = 44
# Pixels; ``diagram.css`` has the first as the least width
_LEAST_SHRUNK = 960
_MOST_SHRUNK = 1_300

# A box, the label, the box that the line's arrow points to
Edge = tuple[int, str, int]


@dataclass(slots=True)
class EdgeLine:
    """One edge. Several edges between the same two boxes share the first one's path."""

    path: str
    label: str
    x: float
    y: float
    # The path is drawn from the box that the arrow points to
    is_reversed: bool = False


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the boxes and lines of a diagram are."""

    # The left upper corner of each box, in tab order: by columns from the left, each from above
    places: dict[int, tuple[float, float]]
    lines: list[EdgeLine]
    width: int
    height: int
    box: tuple[int, int] = (BOX_WIDTH, BOX_HEIGHT)

    @property
    def may_shrink(self) -> bool:
        """Whether it is shown whole and a little smaller where it does not fit; wider drawings scroll."""
        return _LEAST_SHRUNK < self.width <= _MOST_SHRUNK


@dataclass(slots=True)
class _Slot:
    """A slot of a column: a box, or the lane of an edge."""

    column: int
    node: int | None = None
    neighbours_left: list[_Slot] = field(default_factory=list)
    neighbours_right: list[_Slot] = field(default_factory=list)
    middle: float = 0.0

    @property
    def height(self) -> int:
        return _LANE if self.node is None else BOX_HEIGHT


_Routes = Mapping[tuple[int, int], list[_Slot]]


def lay_out(columns: Mapping[int, int], edges: Iterable[Edge]) -> Layout:
    """Lay out boxes and the edges between them.

    Args:
        columns: the column of each box, from 0.
        edges: edges to other boxes are ignored.
    """
    drawn = [edge for edge in edges if edge[0] in columns and edge[2] in columns and edge[0] != edge[2]]
    places = {node: _Slot(columns[node], node) for node in sorted(columns)}
    pairs = dict.fromkeys((start, end) for start, _, end in drawn)
    routes = {(start, end): _route(places[start], places[end]) for start, end in pairs}
    by_column = _ordered(places, routes)
    height = _stack(by_column)
    corners: dict[int, tuple[float, float]] = {}
    for place in chain.from_iterable(by_column):
        if place.node is not None:
            corners[place.node] = (_x(place.column), round(place.middle - BOX_HEIGHT / 2, 1))
    width = len(by_column) * (BOX_WIDTH + _GAP_X) - _GAP_X + 2 * _MARGIN
    if any(places[start].column == places[end].column for start, end in pairs):
        width += _ARC
    return Layout(corners, _edge_lines(drawn, routes), width, height)


def wrapped(title: str) -> list[str]:
    """Return a title in the lines that a box has room for."""
    wrap = textwrap.TextWrapper(_LINE_CHARACTERS, max_lines=_LINES, placeholder=" …", break_on_hyphens=False)
    return wrap.wrap(title)


# From right to left, with a lane in each column between; both ends where they are in one column
def _route(start: _Slot, end: _Slot) -> list[_Slot]:
    if start.column == end.column:
        return [start, end]
    leftmost, rightmost = sorted((start, end), key=lambda slot: slot.column)
    lanes = [_Slot(column) for column in range(rightmost.column - 1, leftmost.column, -1)]
    route = [rightmost, *lanes, leftmost]
    for one, following in pairwise(route):
        one.neighbours_left.append(following)
        following.neighbours_right.append(one)
    return route


# Barycentre heuristic: every slot moves near the mean of its neighbours, so that few lines cross.
def _ordered(places: Mapping[int, _Slot], routes: _Routes) -> list[list[_Slot]]:
    last = max(place.column for place in places.values())
    columns: list[list[_Slot]] = [[] for _ in range(last + 1)]
    for place in places.values():
        columns[place.column].append(place)
    for route in routes.values():
        for lane in route[1:-1]:
            columns[lane.column].append(lane)
    for column in columns:
        _set_middles(column)
    for _ in range(_SWEEPS // 2):
        for column in columns:
            column.sort(key=lambda slot: _mean_middle(slot.neighbours_left, slot.middle))
            _set_middles(column)
        for column in reversed(columns):
            column.sort(key=lambda slot: _mean_middle(slot.neighbours_right, slot.middle))
            _set_middles(column)
    return columns


def _set_middles(column: Sequence[_Slot]) -> None:
    for index, place in enumerate(column):
        place.middle = index - len(column) / 2


def _mean_middle(neighbours: Sequence[_Slot], otherwise: float) -> float:
    if not neighbours:
        return otherwise
    return sum(place.middle for place in neighbours) / len(neighbours)


def _stack(columns: Sequence[Sequence[_Slot]]) -> int:
    heights = [sum(place.height + _GAP_Y for place in column) - _GAP_Y for column in columns]
    tallest = max(heights)
    for column, height in zip(columns, heights, strict=True):
        y = _MARGIN + (tallest - height) / 2
        for place in column:
            place.middle = y + place.height / 2
            y += place.height + _GAP_Y
    return round(tallest + 2 * _MARGIN)


def _edge_lines(edges: Sequence[Edge], routes: _Routes) -> list[EdgeLine]:
    by_gap: dict[tuple[int, bool], list[EdgeLine]] = {}
    paths = {pair: _svg_path(route) for pair, route in routes.items()}
    for first, label, last in edges:
        start, following = routes[first, last][:2]
        is_arc = start.column == following.column
        offset = BOX_WIDTH + _ARC / 2 if is_arc else -_GAP_X / 2
        x = _x(start.column) + offset
        y = (start.middle + following.middle) / 2
        is_reversed = start.node != first
        line = EdgeLine(paths.pop((first, last), ""), label, round(x, 1), y, is_reversed)
        by_gap.setdefault((start.column, is_arc), []).append(line)
    for labels in by_gap.values():
        _spread(labels)
    return list(chain.from_iterable(by_gap.values()))


# Moves overlapping labels down.
def _spread(labels: list[EdgeLine]) -> None:
    labels.sort(key=lambda line: line.y)
    lowest = float("-inf")
    for line in labels:
        line.y = round(max(line.y, lowest + _LABEL_HEIGHT), 1)
        lowest = line.y


def _svg_path(route: Sequence[_Slot]) -> str:
    first = route[0]
    last = route[-1]
    if first.column == last.column:
        x = _x(first.column) + BOX_WIDTH
        return (
            f"M{x:g} {first.middle:g}C{x + _ARC:g} {first.middle:g} {x + _ARC:g} {last.middle:g} {x:g} {last.middle:g}"
        )
    parts = [f"M{_x(first.column):g} {first.middle:g}"]
    for right, following in pairwise(route):
        end = _x(following.column) + BOX_WIDTH
        bend = (_x(right.column) + end) / 2
        parts.append(f"C{bend:g} {right.middle:g} {bend:g} {following.middle:g} {end:g} {following.middle:g}")
        if following.node is None:
            parts.append(f"H{_x(following.column):g}")
    return "".join(parts)


def _x(column: int) -> int:
    return _MARGIN + column * (BOX_WIDTH + _GAP_X)
