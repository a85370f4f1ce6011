"""Layout of a lineage for an SVG template: decisions in columns by depth, earlier ones to the left.

Edges that span columns get a lane of their own in each column between, so that no line crosses a decision.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from itertools import pairwise
from typing import Any

from decisions.models import DecisionStatus, EdgeRelation

WIDTH, HEIGHT = 220, 66
_GAP_X, _GAP_Y, _LANE = 96, 18, 20
_MARGIN = 12
_LINE_CHARACTERS, _LINES = 27, 2
_LABEL_HEIGHT = 15
_SWEEPS = 4
_REPLACED = (DecisionStatus.SUPERSEDED, DecisionStatus.REJECTED)

# The naming decision, the relation, the named decision.
Edge = tuple[int, str, int]


@dataclass(frozen=True, slots=True)
class Node:
    id: int
    x: float
    y: float
    status: str
    date: str
    lines: list[str]
    description: str
    is_current: bool
    is_struck: bool


@dataclass(slots=True)
class Line:
    """One edge. Several edges between the same two decisions share the first one's path."""

    path: str
    label: str
    x: float
    y: float


# Pixels; ``decisions.css`` has the first as the least width
_LEAST_SHRUNK = 960
_MOST_SHRUNK = 1_300


@dataclass(frozen=True, slots=True)
class Drawing:
    # In tab order: the earliest first.
    nodes: list[Node]
    lines: list[Line]
    width: int
    height: int
    box: tuple[int, int] = (WIDTH, HEIGHT)

    @property
    def may_shrink(self) -> bool:
        """Whether it is shown whole and a little smaller where it does not fit; wider drawings scroll."""
        return _LEAST_SHRUNK < self.width <= _MOST_SHRUNK


@dataclass(slots=True)
class _Place:
    """A slot of a column: a decision, or the lane of an edge."""

    column: int
    node: int | None = None
    left: list[_Place] = field(default_factory=list)
    right: list[_Place] = field(default_factory=list)
    middle: float = 0.0

    @property
    def height(self) -> int:
        return _LANE if self.node is None else HEIGHT


_Routes = Mapping[tuple[int, int], list[_Place]]


def draw_lineage(decisions: Sequence[Mapping[str, Any]], edges: Iterable[Edge], current: int) -> Drawing:
    """Lay out decisions and their edges, which have no cycle.

    Args:
        decisions: each with ``id``, ``title``, ``status`` and ``decided_at``, a date.
        edges: edges to other decisions are ignored.
        current: id of the highlighted decision.
    """
    by_id = {decision["id"]: decision for decision in decisions}
    drawn = sorted({edge for edge in edges if edge[0] in by_id and edge[2] in by_id})
    columns = _columns(by_id, drawn, current)
    places = {node: _Place(columns[node], node) for node in sorted(by_id)}
    pairs = dict.fromkeys((start, end) for start, _, end in drawn)
    routes = {(start, end): _route(places[start], places[end]) for start, end in pairs}
    by_column = _ordered(places, routes)
    height = _stack(by_column)
    relations = _relations_in_words(drawn)
    nodes = [
        _node(place, by_id[place.node], relations.get(place.node, []), is_current=place.node == current)
        for column in by_column
        for place in column
        if place.node is not None
    ]
    return Drawing(
        nodes=nodes,
        lines=_lines(drawn, routes),
        width=len(by_column) * (WIDTH + _GAP_X) - _GAP_X + 2 * _MARGIN,
        height=height,
    )


# A decision's column is one after the last of those it names; both sides meet at the current decision.
def _columns(nodes: Iterable[int], edges: Sequence[Edge], current: int) -> dict[int, int]:
    named: dict[int, set[int]] = {node: set() for node in nodes}
    for start, _, end in edges:
        named[start].add(end)
    order = list(TopologicalSorter(named).static_order())
    before = _reach(order[::-1], named, current)
    naming: dict[int, set[int]] = {node: set() for node in named}
    for start, ends in named.items():
        for end in ends:
            naming[end].add(start)
    after = _reach(order, naming, current)
    found = {**{node: -depth for node, depth in before.items()}, **after}
    first = min(found.values(), default=0)
    return {node: found.get(node, 0) - first for node in named}


# Length of the longest path from `start` to each decision that it reaches.
def _reach(order: Sequence[int], following: Mapping[int, set[int]], start: int) -> dict[int, int]:
    depths = {start: 0}
    for node in order:
        if node in depths:
            for target in following[node]:
                depths[target] = max(depths.get(target, 0), depths[node] + 1)
    return depths


# From right to left, with a lane in each column between.
def _route(start: _Place, end: _Place) -> list[_Place]:
    lanes = [_Place(column) for column in range(start.column - 1, end.column, -1)]
    route = [start, *lanes, end]
    for right, left in pairwise(route):
        right.left.append(left)
        left.right.append(right)
    return route


# Barycentre heuristic: every slot moves near the mean of its neighbours, so that few lines cross.
def _ordered(places: Mapping[int, _Place], routes: _Routes) -> list[list[_Place]]:
    last = max(place.column for place in places.values())
    columns: list[list[_Place]] = [[] for _ in range(last + 1)]
    for place in [*places.values(), *(lane for route in routes.values() for lane in route[1:-1])]:
        columns[place.column].append(place)
    for column in columns:
        _number(column)
    for sweep in range(_SWEEPS):
        for column in columns[:: -1 if sweep % 2 else 1]:
            column.sort(key=_wanted_right if sweep % 2 else _wanted_left)
            _number(column)
    return columns


def _number(column: Sequence[_Place]) -> None:
    for index, place in enumerate(column):
        place.middle = index - len(column) / 2


def _wanted_left(place: _Place) -> float:
    return _mean(place.left, place.middle)


def _wanted_right(place: _Place) -> float:
    return _mean(place.right, place.middle)


def _mean(neighbours: Sequence[_Place], otherwise: float) -> float:
    return sum(place.middle for place in neighbours) / len(neighbours) if neighbours else otherwise


def _stack(columns: Sequence[Sequence[_Place]]) -> int:
    heights = [sum(place.height + _GAP_Y for place in column) - _GAP_Y for column in columns]
    tallest = max(heights)
    for column, height in zip(columns, heights, strict=True):
        y = _MARGIN + (tallest - height) / 2
        for place in column:
            place.middle = y + place.height / 2
            y += place.height + _GAP_Y
    return round(tallest + 2 * _MARGIN)


def _lines(edges: Sequence[Edge], routes: _Routes) -> list[Line]:
    by_gap: dict[int, list[Line]] = {}
    paths = {pair: _path(route) for pair, route in routes.items()}
    for first, relation, last in edges:
        start, following = routes[first, last][:2]
        label = str(EdgeRelation(relation).label).lower()
        x, y = _x(start.column) - _GAP_X / 2, (start.middle + following.middle) / 2
        by_gap.setdefault(start.column, []).append(Line(paths.pop((first, last), ""), label, round(x, 1), y))
    for labels in by_gap.values():
        _spread(labels)
    return [line for labels in by_gap.values() for line in labels]


# Moves overlapping labels down.
def _spread(labels: list[Line]) -> None:
    labels.sort(key=lambda line: line.y)
    lowest = float("-inf")
    for line in labels:
        line.y = round(max(line.y, lowest + _LABEL_HEIGHT), 1)
        lowest = line.y


def _path(route: Sequence[_Place]) -> str:
    parts = [f"M{_x(route[0].column):g} {route[0].middle:g}"]
    for right, left in pairwise(route):
        x, end = _x(right.column), _x(left.column) + WIDTH
        bend = (x + end) / 2
        parts.append(f"C{bend:g} {right.middle:g} {bend:g} {left.middle:g} {end:g} {left.middle:g}")
        if left.node is None:
            parts.append(f"H{_x(left.column):g}")
    return "".join(parts)


def _node(place: _Place, decision: Mapping[str, Any], relations: Sequence[str], *, is_current: bool) -> Node:
    number, title, status = decision["id"], decision["title"], DecisionStatus(decision["status"])
    description = [f"#{number} {title}", str(status.label).lower(), f"decided {decision['decided_at']}", *relations]
    wrap = textwrap.TextWrapper(_LINE_CHARACTERS, max_lines=_LINES, placeholder=" …", break_on_hyphens=False)
    return Node(
        id=number,
        x=_x(place.column),
        y=round(place.middle - HEIGHT / 2, 1),
        status=status.value,
        date=decision["decided_at"],
        lines=wrap.wrap(title),
        description=", ".join(description),
        is_current=is_current,
        is_struck=status in _REPLACED,
    )


def _relations_in_words(edges: Sequence[Edge]) -> dict[int, list[str]]:
    relations: dict[int, list[str]] = {}
    for start, relation, end in edges:
        relations.setdefault(start, []).append(f"{str(EdgeRelation(relation).label).lower()} #{end}")
    return relations


def _x(column: int) -> int:
    return _MARGIN + column * (WIDTH + _GAP_X)
