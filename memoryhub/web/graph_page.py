"""The graph around an item: a diagram, and the same as a list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.http import urlencode

from governance.graph import Edge, Graph, Node, NodeType, graph_around
from memoryhub.core.admin.diagram import lay_out, wrapped
from memoryhub.core.text import counted

_VIEWS = {
    NodeType.MEMORY: "admin:memories_memory_change",
    NodeType.DECISION: "admin:decisions_decision_change",
    NodeType.COMMIT: "admin:sessions_app_commit_change",
    NodeType.SESSION: "admin:sessions_app_session_change",
}
_PLURALS = {
    NodeType.MEMORY: "Memories",
    NodeType.DECISION: "Decisions",
    NodeType.COMMIT: "Commits",
    NodeType.SESSION: "Sessions",
    NodeType.FILE: "Files",
}


@dataclass(frozen=True, slots=True)
class Box:
    node: Node
    x: float
    y: float
    lines: list[str]
    url: str
    # Of the graph around it, "" for files
    graph_url: str
    # (label, is outgoing, the other node)
    relations: list[tuple[str, bool, Node]]
    is_current: bool

    @property
    def name(self) -> str:
        """The type, as the box shows it, with the number."""
        label = self.node.kind or self.node.type.value
        return f"{label} #{self.node.id}" if self.node.id > 0 else label

    @property
    def description(self) -> str:
        deleted = ["deleted"] if self.node.is_deleted else []
        relations = [
            f"{label} {other.title}" if is_out else f"{other.title} {label} it"
            for label, is_out, other in self.relations
        ]
        return ", ".join([f"{self.name} {self.node.title}", *deleted, *relations])


def show_graph(request: HttpRequest, entity_id: int, context: dict[str, Any]) -> HttpResponse:
    shown = [NodeType(name) for name in request.GET.getlist("type") if name in set(NodeType)] or list(NodeType)
    depth = 2 if request.GET.get("depth") == "2" else 1
    graph = graph_around(entity_id, depth=depth, types=shown)
    first = min(graph.columns.values())
    columns = {number: column - first for number, column in graph.columns.items()}
    layout = lay_out(columns, [(edge.start, edge.label, edge.end) for edge in graph.edges])
    boxes = [_box(graph, number, place, entity_id) for number, place in layout.places.items()]
    centre = graph.nodes[entity_id]
    page = {
        "title": f"Graph of #{entity_id}",
        "centre": next(box for box in boxes if box.is_current),
        "layout": layout,
        "boxes": boxes,
        "groups": _groups(boxes, graph),
        "filters": _filters(shown, depth),
        "depths": [(number, _address(shown, number), number == depth) for number in (1, 2)],
        "is_alone": len(boxes) == 1,
        "is_filtered": len(shown) < len(NodeType),
        "summary": f"{centre.title}, with {counted(len(boxes) - 1, 'neighbour')}",
    }
    return TemplateResponse(request, "admin/graph.html", {**context, **page})


def _box(graph: Graph, number: int, place: tuple[float, float], centre: int) -> Box:
    node = graph.nodes[number]
    return Box(
        node,
        *place,
        wrapped(node.title) or ["(no title)"],
        _url(node),
        reverse("admin:graph", args=[number]) if number > 0 else "",
        [_relation(edge, number, graph) for edge in graph.edges if number in (edge.start, edge.end)],
        number == centre,
    )


def _relation(edge: Edge, number: int, graph: Graph) -> tuple[str, bool, Node]:
    is_out = edge.start == number
    return edge.label, is_out, graph.nodes[edge.end if is_out else edge.start]


# A file has no page; the search names what mentions it
def _url(node: Node) -> str:
    if node.type is NodeType.FILE:
        return f"{reverse('admin:memories_searchdocument_changelist')}?{urlencode({'query': node.title})}"
    return reverse(_VIEWS[node.type], args=[node.id])


def _groups(boxes: list[Box], graph: Graph) -> list[tuple[str, list[Box], int]]:
    found = [
        (label, [box for box in boxes if box.node.type is name], graph.hidden[name]) for name, label in _PLURALS.items()
    ]
    return [group for group in found if group[1] or group[2]]


def _filters(shown: list[NodeType], depth: int) -> list[tuple[str, str, bool]]:
    """Return for each type its label, the address with it switched, and whether it is shown."""
    found = []
    for name, label in _PLURALS.items():
        others = [other for other in NodeType if (other in shown) != (other is name)]
        found.append((label, _address(others or list(NodeType), depth), name in shown))
    return found


def _address(shown: list[NodeType], depth: int) -> str:
    every = set(shown) == set(NodeType)
    query = [("type", name.value) for name in ([] if every else shown)] + [("depth", str(depth))] * (depth > 1)
    return f"?{urlencode(query)}"
