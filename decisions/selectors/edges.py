"""Walking the graph of decisions, each walk in one query."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django.db.models import QuerySet

from decisions.models import LINEAGE, DecisionEdge, EdgeRelation
from memoryhub.core.log.quarantine import OUTSIDE, outside_quarantine, quarantined_among
from memoryhub.core.stores import rows

TOLD = f"e.event {OUTSIDE} AND e.from_id {OUTSIDE} AND e.to_id {OUTSIDE}"
"""The condition on an edge ``e`` that is told of: neither it nor its ends are in quarantine."""

_UP = (
    "decisions_decisionedge e ON e.to_id = up.id AND e.relation = 'supersedes' "
    f"AND (e.event = e.from_id OR e.event {OUTSIDE})"
)
"""What supersedes; what a decision in quarantine itself named leads on to what has superseded that."""


@dataclass(frozen=True, slots=True)
class Step:
    """A decision on the way from where a walk began."""

    id: int
    depth: int
    relation: str
    """Of the edge by which it was reached first."""
    via: int
    """The decision from which it was reached."""


def ancestors(decision_id: int, relations: Sequence[str] = LINEAGE) -> list[Step]:
    """Return what led to a decision: those that it names, those that they name, and so on; nearest first."""
    found = _reached(decision_id, relations, "from_id", "to_id")
    return _walk(decision_id, ((start, relation, end) for start, relation, end in found))


def descendants(decision_id: int, relations: Sequence[str] = LINEAGE) -> list[Step]:
    """Return what came of a decision: those that name it, those that name them, and so on; nearest first."""
    found = _reached(decision_id, relations, "to_id", "from_id")
    return _walk(decision_id, ((end, relation, start) for start, relation, end in found))


def heads(decision_ids: Sequence[int]) -> dict[int, list[int]]:
    """Return for each decision what stands now instead of it: itself where nothing supersedes it.

    What is in quarantine does not stand, nor does it keep what it superseded from standing; what supersedes it in turn
    does.
    """
    if not decision_ids:
        return {}
    marks = ", ".join(["%s"] * len(decision_ids))
    found = rows.fetch(
        f"WITH RECURSIVE up(id) AS (SELECT id FROM decisions_decision WHERE id IN ({marks}) "
        f"UNION SELECT e.from_id FROM up JOIN {_UP}) SELECT up.id, e.from_id FROM up LEFT JOIN {_UP}",
        list(decision_ids),
    )
    void = quarantined_among([each for each, _ in found])
    above: dict[int, list[int]] = {}
    for decision_id, replacing in found:
        above.setdefault(decision_id, []).extend([] if replacing is None else [replacing])
    standing: dict[int, frozenset[int]] = {}
    for decision_id in above:
        _find_in_force(decision_id, above, standing, void)
    return {each: sorted(standing[each], reverse=True) for each in decision_ids if each in standing}


def _find_in_force(
    decision_id: int, above: dict[int, list[int]], standing: dict[int, frozenset[int]], void: set[int]
) -> None:
    """Note what stands instead of a decision and of those on the way there, which have no cycle."""
    waiting = [decision_id]
    while waiting:
        here = waiting[-1]
        unknown = [each for each in above[here] if each not in standing]
        if unknown:
            waiting += unknown
            continue
        waiting.pop()
        known = {standing[each] for each in above[here]}
        instead = known.pop() if len(known) == 1 else frozenset().union(*known)
        standing[here] = instead or frozenset(() if here in void else (here,))


def superseded_among(decision_ids: Sequence[int]) -> list[int]:
    """Return those of the decisions that others supersede, whatever their status, in the order given."""
    standing = heads(decision_ids)
    return [each for each in decision_ids if standing.get(each, [each]) not in ([each], [])]


def visible_edges() -> QuerySet[DecisionEdge]:
    """Return the edges that are told of: neither they nor their ends are in quarantine."""
    edges: QuerySet[DecisionEdge] = DecisionEdge.objects.all()
    for field in ("event", "from_id", "to_id"):
        edges = outside_quarantine(edges, field)
    return edges


def path_between(start: int, end: int, relations: Sequence[str] = LINEAGE) -> list[int]:
    """Return the ids on a shortest way from ``start`` to ``end`` along the edges; empty where there is none.

    Edges in quarantine count too: what is let out must find no cycle.
    """
    steps = {step.id: step for step in _walk(start, _reached(start, relations, "from_id", "to_id", "true"))}
    if end not in steps and end != start:
        return []
    path = [end]
    while path[-1] != start:
        path.append(steps[path[-1]].via)
    return path[::-1]


def _reached(
    decision_id: int, relations: Sequence[str], near: str, far: str, condition: str = TOLD
) -> list[tuple[int, str, int]]:
    """Return every edge of the part of the graph that can be reached from a decision, against or along the edges."""
    names = [str(EdgeRelation(relation)) for relation in relations]
    marks = ", ".join(["%s"] * len(names))
    found = rows.fetch(
        "WITH RECURSIVE reach(id) AS (VALUES (CAST(%s AS INTEGER)) UNION "
        f"SELECT e.{far} FROM reach JOIN decisions_decisionedge e ON e.{near} = reach.id AND e.relation IN ({marks}) "
        f"AND {condition}) SELECT e.from_id, e.relation, e.to_id FROM reach JOIN decisions_decisionedge e "
        f"ON e.{near} = reach.id AND e.relation IN ({marks}) AND {condition}",
        [decision_id, *names, *names],
    )
    return [(start, relation, end) for start, relation, end in found]


def _walk(start: int, edges: Iterable[tuple[int, str, int]]) -> list[Step]:
    """Return what can be reached from ``start``, breadth first, so that each depth is the least."""
    following: dict[int, list[tuple[str, int]]] = {}
    for near, relation, far in edges:
        following.setdefault(near, []).append((relation, far))
    seen, steps, queue = {start}, [], deque([(start, 0)])
    while queue:
        here, depth = queue.popleft()
        for relation, there in sorted(following.get(here, ()), key=lambda edge: -edge[1]):
            if there not in seen:
                seen.add(there)
                steps.append(Step(there, depth + 1, relation, here))
                queue.append((there, depth + 1))
    return steps
