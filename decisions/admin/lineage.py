"""A lineage as a diagram: decisions in columns by depth, earlier ones to the left."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import Any

from decisions.models import DecisionStatus, EdgeRelation
from memoryhub.core.admin.svg import Edge, Layout, lay_out, wrapped

_REPLACED = (DecisionStatus.SUPERSEDED, DecisionStatus.REJECTED)


@dataclass(frozen=True, slots=True)
class LineageNode:
    id: int
    x: float
    y: float
    status: str
    date: str
    lines: list[str]
    description: str
    is_current: bool
    is_struck: bool


@dataclass(frozen=True, slots=True)
class Drawing:
    # In tab order: the earliest first.
    nodes: list[LineageNode]
    layout: Layout


def draw_lineage(decisions: Sequence[Mapping[str, Any]], edges: Iterable[Edge], current: int) -> Drawing:
    """Lay out decisions and their edges, which have no cycle.

    Args:
        decisions: each with ``id``, ``title``, ``status`` and ``decided_at``, a date.
        edges: edges to other decisions are ignored.
        current: id of the highlighted decision.
    """
    by_id = {decision["id"]: decision for decision in decisions}
    drawn = sorted({edge for edge in edges if edge[0] in by_id and edge[2] in by_id})
    labelled = [(start, str(EdgeRelation(relation).label).lower(), end) for start, relation, end in drawn]
    layout = lay_out(_columns(by_id, drawn, current), labelled)
    relations: dict[int, list[str]] = {}
    for start, label, end in labelled:
        relations.setdefault(start, []).append(f"{label} #{end}")
    nodes = [
        _node(place, by_id[number], relations.get(number, []), is_current=number == current)
        for number, place in layout.places.items()
    ]
    return Drawing(nodes, layout)


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
    distances = {**{node: -depth for node, depth in before.items()}, **after}
    first = min(distances.values(), default=0)
    return {node: distances.get(node, 0) - first for node in named}


# Length of the longest path from `start` to each decision that it reaches.
def _reach(order: Sequence[int], following: Mapping[int, set[int]], start: int) -> dict[int, int]:
    depths = {start: 0}
    for node in order:
        if node in depths:
            for target in following[node]:
                depths[target] = max(depths.get(target, 0), depths[node] + 1)
    return depths


def _node(
    place: tuple[float, float], decision: Mapping[str, Any], relations: Sequence[str], *, is_current: bool
) -> LineageNode:
    number, title, status = decision["id"], decision["title"], DecisionStatus(decision["status"])
    description = [f"#{number} {title}", str(status.label).lower(), f"decided {decision['decided_at']}", *relations]
    return LineageNode(
        id=number,
        x=place[0],
        y=place[1],
        status=status.value,
        date=decision["decided_at"],
        lines=wrapped(title),
        description=", ".join(description),
        is_current=is_current,
        is_struck=status in _REPLACED,
    )
