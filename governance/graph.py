"""What surrounds an item: memories, decisions, commits, files and sessions, one or two steps away."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import starmap

from governance.staleness.governed_files import governing
from memoryhub.core.entities import find_entities
from memoryhub.core.errors import NotFound
from memoryhub.core.log.quarantine import quarantined_among
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS, TEXTS

# Nodes of one type that one step adds, and of a graph
_MOST_OF_A_TYPE = 12
_MOST = 60
_MOST_EDGES = 2_000


class NodeType(StrEnum):
    MEMORY = "memory"
    DECISION = "decision"
    COMMIT = "commit"
    SESSION = "session"
    FILE = "file"


@dataclass(frozen=True, slots=True)
class GraphNode:
    # Negative for files, which have no number
    id: int
    type: NodeType
    title: str
    # Kind of a memory
    kind: str = ""
    is_deleted: bool = False


@dataclass(frozen=True, slots=True)
class GraphEdge:
    """``start`` names or follows ``end``: it supersedes it, was written in it, implements it."""

    start: int
    label: str
    end: int


@dataclass
class Graph:
    nodes: dict[int, GraphNode] = field(default_factory=dict)
    edges: list[GraphEdge] = field(default_factory=list)
    # Steps from the item, negative towards what it names
    columns: dict[int, int] = field(default_factory=dict)
    # Neighbours that are not shown, by type
    hidden: Counter[NodeType] = field(default_factory=Counter)


_RELATIONS = f"""
SELECT source_id, replace(relation, '_', ' '), target_id FROM memories_relation
    WHERE (source_id IN {IDS} OR target_id IN {IDS}) AND source_type <> 'project' AND target_type <> 'project'
UNION SELECT from_id, replace(relation, '_', ' '), to_id FROM decisions_decisionedge
    WHERE from_id IN {IDS} OR to_id IN {IDS}
UNION SELECT commit_id, link_type, decision_id FROM decisions_commitlink
    WHERE decision_id IN {IDS} OR commit_id IN {IDS}
ORDER BY 1 DESC LIMIT {_MOST_EDGES}
"""
# The sessions in which items were written, and what was written in sessions
_WRITTEN_IN = f"""
SELECT e.position, 'written in', s.id FROM raw_events e JOIN sessions_app_session s ON s.session_id = e.session_id
    WHERE e.position IN {IDS} AND e.position <> s.id
UNION SELECT e.position, 'written in', s.id FROM sessions_app_session s JOIN raw_events e ON e.session_id = s.session_id
    WHERE s.id IN {IDS} AND e.event_type IN ('memory.written', 'decision.recorded', 'commit.recorded')
ORDER BY 1 DESC LIMIT {_MOST_EDGES}
"""
_FILES = f"SELECT commit_id, path FROM decisions_commitfile WHERE commit_id IN {IDS} ORDER BY commit_id DESC, path"
_COMMITS = f"SELECT commit_id, path FROM decisions_commitfile WHERE path IN {TEXTS} ORDER BY commit_id DESC"


def graph_around(entity_id: int, *, depth: int = 1, types: Collection[NodeType] = tuple(NodeType)) -> Graph:
    """Return an item and its neighbours, at most 60, in a number of queries that depends on ``depth`` alone.

    Raises:
        NotFound: there is no such item, or it is in quarantine.
    """
    walk = _GraphWalk(set(types))
    if not walk.begin(entity_id):
        raise NotFound(f"there is no item #{entity_id} here", id=entity_id)
    for step in range(1, depth + 1):
        walk.take(step)
    left_out = {node for node in walk.left_out if node.id not in walk.graph.nodes}
    walk.graph.hidden = Counter(node.type for node in left_out)
    walk.graph.edges = [edge for edge in walk.seen if edge.start in walk.graph.nodes and edge.end in walk.graph.nodes]
    return walk.graph


class _GraphWalk:
    def __init__(self, types: set[NodeType]) -> None:
        self.graph = Graph()
        self.seen: list[GraphEdge] = []
        # A later step may show what an earlier one left out
        self.left_out: set[GraphNode] = set()
        self._types = types
        self._files: dict[str, int] = {}
        self._frontier: list[int] = []

    def begin(self, entity_id: int) -> bool:
        self._add(self._nodes([entity_id]), {entity_id: 0})
        return bool(self.graph.nodes)

    def take(self, step: int) -> None:
        edges = list(dict.fromkeys(self._edges(self._frontier)))
        self.seen += [edge for edge in edges if edge not in self.seen]
        columns: dict[int, int] = {}
        present = set(self._frontier)
        for edge in edges:
            for here, there, way in ((edge.start, edge.end, -1), (edge.end, edge.start, 1)):
                if here in present and there not in self.graph.nodes:
                    columns.setdefault(there, self.graph.columns[here] + way)
        self._add(self._chosen(self._nodes(columns)), columns)

    def _add(self, nodes: Sequence[GraphNode], columns: dict[int, int]) -> None:
        self._frontier = [node.id for node in nodes]
        for node in nodes:
            self.graph.nodes[node.id] = node
            self.graph.columns[node.id] = columns[node.id]

    def _edges(self, ids: Sequence[int]) -> Iterator[GraphEdge]:
        positions = [number for number in ids if number > 0]
        numbers = json.dumps(positions)
        yield from starmap(GraphEdge, rows.fetch(_RELATIONS, [numbers] * 6))
        yield from starmap(GraphEdge, rows.fetch(_WRITTEN_IN, [numbers, numbers]))
        for thing in governing(positions).values():
            for path in sorted(thing.paths):
                yield GraphEdge(self._file(path), "governed by", thing.id)
        paths = json.dumps([path for path, number in self._files.items() if number in ids])
        for commit, path in (*rows.fetch(_FILES, [numbers]), *rows.fetch(_COMMITS, [paths])):
            yield GraphEdge(self._file(path), "changed by", commit)

    def _file(self, path: str) -> int:
        return self._files.setdefault(path, -1 - len(self._files))

    # Newest first
    def _nodes(self, ids: Iterable[int]) -> list[GraphNode]:
        numbers = set(ids)
        positions = {number for number in numbers if number > 0}
        items = []
        for entity in find_entities(positions - quarantined_among(sorted(positions))).values():
            if entity.type in set(NodeType):
                items.append(GraphNode(entity.id, NodeType(entity.type), entity.title, entity.kind, entity.deleted))
        files = [GraphNode(number, NodeType.FILE, path) for path, number in self._files.items() if number in numbers]
        return [*sorted(items, key=lambda node: -node.id), *files]

    def _chosen(self, nodes: Sequence[GraphNode]) -> list[GraphNode]:
        counts: Counter[NodeType] = Counter()
        chosen: list[GraphNode] = []
        for node in nodes:
            if node.type in self._types:
                counts[node.type] += 1
                if counts[node.type] <= _MOST_OF_A_TYPE and len(self.graph.nodes) + len(chosen) < _MOST:
                    chosen.append(node)
                else:
                    self.left_out.add(node)
        return chosen
