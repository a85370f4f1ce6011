"""Walks of the decision graph, one query each."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django.db.models import QuerySet

from decisions.models import LINEAGE, DecisionEdge, EdgeRelation
from memoryhub.core.log.quarantine import OUTSIDE, outside_quarantine, quarantined_among
from memoryhub.core.stores import rows

# SQL predicate: neither edge `e` nor its ends are in quarantine.
VISIBLE = f"e.event {OUTSIDE} AND e.from_id {OUTSIDE} AND e.to_id {OUTSIDE}"

# Superseding decisions. The edges of a quarantined decision still count, so that what supersedes it is found.
_UP = (
    "decisions_decisionedge e ON e.to_id = up.id AND e.relation = 'supersedes' "
    f"AND (e.event = e.from_id OR e.event {OUTSIDE})"
)


@dataclass(frozen=True, slots=True)
class Step:
    """A decision on a walk."""

    id: int
    depth: int
    # Of the edge by which it was first reached.
    relation: str
    # The decision from which it was reached.
    via: int


def ancestors(decision_id: int, relations: Sequence[str] = LINEAGE) -> list[Step]:
    """Return the decisions that this one names, directly or indirectly; nearest first."""
    found = _reached(decision_id, relations, "from_id", "to_id")
    return _walk(decision_id, ((start, relation, end) for start, relation, end in found))


def descendants(decision_id: int, relations: Sequence[str] = LINEAGE) -> list[Step]:
    """Return the decisions that name this one, directly or indirectly; nearest first."""
    found = _reached(decision_id, relations, "to_id", "from_id")
    return _walk(decision_id, ((end, relation, start) for start, relation, end in found))


def heads(decision_ids: Sequence[int]) -> dict[int, list[int]]:
    """Map decisions to those now in force instead: themselves if nothing supersedes them.

    Quarantined decisions are not in force and supersede nothing, but decisions that supersede them are followed.
    """
    if not decision_ids:
        return {}
    marks = ", ".join(["%s"] * len(decision_ids))
    found = rows.fetch(
        f"WITH RECURSIVE up(id) AS (SELECT id FROM decisions_decision WHERE id IN ({marks}) "
        f"UNION SELECT e.from_id FROM up JOIN {_UP}) SELECT up.id, e.from_id FROM up LEFT JOIN {_UP}",
        list(decision_ids),
    )
    void = quarantined_among([reached for reached, _ in found])
    above: dict[int, list[int]] = {}
    for decision_id, replacing in found:
        above.setdefault(decision_id, []).extend([] if replacing is None else [replacing])
    in_force: dict[int, frozenset[int]] = {}
    for decision_id in above:
        _find_in_force(decision_id, above, in_force, void)
    return {start: sorted(in_force[start], reverse=True) for start in decision_ids if start in in_force}


# Iterative depth-first search: chains may be longer than Python's recursion limit.
def _find_in_force(
    decision_id: int, above: dict[int, list[int]], in_force: dict[int, frozenset[int]], void: set[int]
) -> None:
    stack = [decision_id]
    while stack:
        here = stack[-1]
        unknown = [replacing for replacing in above[here] if replacing not in in_force]
        if unknown:
            stack += unknown
            continue
        stack.pop()
        known = {in_force[replacing] for replacing in above[here]}
        replaced_by = known.pop() if len(known) == 1 else frozenset().union(*known)
        in_force[here] = replaced_by or frozenset(() if here in void else (here,))


def superseded_among(decision_ids: Sequence[int]) -> list[int]:
    """Return the decisions that others supersede, whatever their status, in the given order."""
    current = heads(decision_ids)
    return [start for start in decision_ids if current.get(start, [start]) not in ([start], [])]


def visible_edges() -> QuerySet[DecisionEdge]:
    """Return the edges that are not in quarantine, and whose ends are not."""
    edges: QuerySet[DecisionEdge] = DecisionEdge.objects.all()
    for field in ("event", "from_id", "to_id"):
        edges = outside_quarantine(edges, field)
    return edges


def path_between(start: int, end: int, relations: Sequence[str] = LINEAGE) -> list[int]:
    """Return the ids on a shortest path along the edges; empty if there is none.

    Quarantined edges count too: lifting a quarantine must not close a cycle.
    """
    steps = {step.id: step for step in _walk(start, _reached(start, relations, "from_id", "to_id", "true"))}
    if end not in steps and end != start:
        return []
    path = [end]
    while path[-1] != start:
        path.append(steps[path[-1]].via)
    return path[::-1]


# All edges reachable from a decision, in one query.
def _reached(
    decision_id: int, relations: Sequence[str], near: str, far: str, condition: str = VISIBLE
) -> list[tuple[int, str, int]]:
    names = [str(EdgeRelation(relation)) for relation in relations]
    marks = ", ".join(["%s"] * len(names))
    found = rows.fetch(
        "WITH RECURSIVE reach(id) AS (VALUES (CAST(%s AS bigint)) UNION "
        f"SELECT e.{far} FROM reach JOIN decisions_decisionedge e ON e.{near} = reach.id AND e.relation IN ({marks}) "
        f"AND {condition}) SELECT e.from_id, e.relation, e.to_id FROM reach JOIN decisions_decisionedge e "
        f"ON e.{near} = reach.id AND e.relation IN ({marks}) AND {condition}",
        [decision_id, *names, *names],
    )
    return [(start, relation, end) for start, relation, end in found]


# Breadth first, so that each depth is minimal.
def _walk(start: int, edges: Iterable[tuple[int, str, int]]) -> list[Step]:
    following: dict[int, list[tuple[str, int]]] = {}
    for near, relation, far in edges:
        following.setdefault(near, []).append((relation, far))
    seen, steps, queue = {start}, [], deque([(start, 0)])
    while queue:
        here, depth = queue.popleft()
        for relation, target in sorted(following.get(here, ()), key=lambda edge: -edge[1]):
            if target not in seen:
                seen.add(target)
                steps.append(Step(target, depth + 1, relation, here))
                queue.append((target, depth + 1))
    return steps
