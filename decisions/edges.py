"""Walks of the decision graph, one query each."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from django.db.models import QuerySet

from decisions.models import IN_FORCE, LINEAGE, DecisionEdge, DecisionStatus
from memories.scopes import NEWEST
from memoryhub.core import log
from memoryhub.core.log.quarantine import OUTSIDE, outside_quarantine, quarantined_among
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS

# SQL predicate: neither edge `e` nor its ends are in quarantine.
VISIBLE = f"e.event {OUTSIDE} AND e.from_id {OUTSIDE} AND e.to_id {OUTSIDE}"

# Superseding decisions. The edges of a quarantined decision still count, so that what supersedes it is found.
_UP = (
    "decisions_decisionedge e ON e.to_id = up.id AND e.relation = 'supersedes' "
    f"AND (e.event = e.from_id OR e.event {OUTSIDE})"
)

_LINEAGE = tuple(map(str, LINEAGE))
_OWN_STATUSES = (DecisionStatus.PROPOSED, DecisionStatus.ACCEPTED, DecisionStatus.REJECTED)
# What a decision is if it was recorded without a status
_DEFAULT_STATUS = {"decision.recorded": DecisionStatus.ACCEPTED.value, "decision.marked": ""}


@dataclass(frozen=True, slots=True)
class LineageStep:
    id: int
    depth: int
    # The edge by which it was first reached
    relation: str
    # The decision from which it was reached.
    via: int


def ancestors(decision_id: int) -> list[LineageStep]:
    """Return the decisions that this one names, directly or indirectly; nearest first."""
    return _walk(decision_id, _reached(decision_id, "from_id", "to_id"))


def descendants(decision_id: int) -> list[LineageStep]:
    """Return the decisions that name this one, directly or indirectly; nearest first."""
    edges = _reached(decision_id, "to_id", "from_id")
    return _walk(decision_id, ((end, relation, start) for start, relation, end in edges))


class Succession:
    """The decisions that supersede some decisions, directly or indirectly, and which of them take effect.

    A decision takes effect once it, or one that supersedes it, is accepted, and while that is not in quarantine. A
    deprecated one does if it was accepted before. A proposed or rejected one retires no accepted decision.
    """

    def __init__(self, decision_ids: Sequence[int], until: int = NEWEST) -> None:
        self._until = until
        records = rows.fetch(
            f"WITH RECURSIVE up(id) AS (SELECT id FROM decisions_decision WHERE id IN {IDS} "
            f"UNION SELECT e.from_id FROM up JOIN {_UP}) SELECT up.id, d.status, e.from_id FROM up "
            f"JOIN decisions_decision d ON d.id = up.id LEFT JOIN {_UP}",
            [json.dumps(list(decision_ids))],
        )
        self.statuses: dict[int, str] = {decision_id: status for decision_id, status, _ in records}
        self._heirs: dict[int, list[int]] = {decision_id: [] for decision_id in self.statuses}
        for decision_id, _, heir in records:
            if heir in self.statuses:
                self._heirs[decision_id].append(heir)
        self._quarantined = quarantined_among(list(self.statuses))
        self._earlier: dict[int, str] = {}
        self._in_effect: dict[int, frozenset[int]] = {}
        self._proposals: dict[int, frozenset[int]] = {}

    def heads(self, decision_id: int) -> frozenset[int]:
        """Return the decisions that apply instead of this one: itself if none does."""
        successors = self._successors(decision_id)
        if successors or decision_id in self._quarantined:
            return successors
        return frozenset([decision_id])

    def status(self, decision_id: int) -> str:
        """Return the status that follows from the decision's own events and from its successors."""
        recorded_status = self._own_status(decision_id)
        if recorded_status in IN_FORCE and self._successors(decision_id):
            return DecisionStatus.SUPERSEDED
        return recorded_status

    def takes_effect(self, decision_id: int) -> bool:
        """Return whether the decision takes effect by itself, whatever supersedes it."""
        if decision_id in self._quarantined:
            return False
        if self.statuses[decision_id] == DecisionStatus.DEPRECATED:
            return self._earlier_status(decision_id) == DecisionStatus.ACCEPTED
        return self._own_status(decision_id) == DecisionStatus.ACCEPTED

    def _successors(self, decision_id: int) -> frozenset[int]:
        successors = self._above(decision_id, self._in_effect, self.takes_effect)
        if not successors and self._own_status(decision_id) == DecisionStatus.PROPOSED:
            return self._above(decision_id, self._proposals, self._is_proposal)
        return successors

    # Iterative depth-first search: chains may be longer than Python's recursion limit.
    def _above(
        self, decision_id: int, memory: dict[int, frozenset[int]], counts: Callable[[int], bool]
    ) -> frozenset[int]:
        stack = list(self._heirs[decision_id])
        while stack:
            here = stack[-1]
            unknown = [heir for heir in self._heirs[here] if heir not in memory]
            if unknown:
                stack += unknown
                continue
            stack.pop()
            above = _union(memory[heir] for heir in self._heirs[here])
            if not above and counts(here):
                above = frozenset([here])
            memory[here] = above
        return _union(memory[heir] for heir in self._heirs[decision_id])

    def _is_proposal(self, decision_id: int) -> bool:
        return self._own_status(decision_id) == DecisionStatus.PROPOSED and decision_id not in self._quarantined

    def _own_status(self, decision_id: int) -> str:
        status = self.statuses[decision_id]
        if status != DecisionStatus.SUPERSEDED:
            return status
        return self._earlier_status(decision_id) or DecisionStatus.ACCEPTED

    # The last status but deprecated and superseded that the decision's own events set
    def _earlier_status(self, decision_id: int) -> str:
        if decision_id not in self._earlier:
            self._earlier[decision_id] = ""
            settings = log.events().of_stream(f"decision:{decision_id}").of_type(*_DEFAULT_STATUS)
            for event in settings.window(up_to=self._until).reverse():
                payload = json.loads(event.payload_json or "{}")
                status = payload.get("status") or _DEFAULT_STATUS[event.event_type]
                if status in _OWN_STATUSES:
                    self._earlier[decision_id] = status
                    break
        return self._earlier[decision_id]


# Equal sets are not copied: each decision of a long chain has the same head.
def _union(sets: Iterable[frozenset[int]]) -> frozenset[int]:
    distinct = set(sets)
    return distinct.pop() if len(distinct) == 1 else frozenset().union(*distinct)


def heads(decision_ids: Sequence[int]) -> dict[int, list[int]]:
    """Map decisions to those now in force instead: themselves if nothing supersedes them.

    Proposed, rejected and quarantined decisions supersede no accepted one, but decisions that supersede them do.
    """
    if not decision_ids:
        return {}
    succession = Succession(decision_ids)
    existing = [decision_id for decision_id in decision_ids if decision_id in succession.statuses]
    return {decision_id: sorted(succession.heads(decision_id), reverse=True) for decision_id in existing}


def heads_of(decision_id: int) -> list[int]:
    """Return the decisions now in force instead of one; empty if it does not exist."""
    return heads([decision_id]).get(decision_id, [])


def replaced_by(decision_id: int, named: Sequence[int]) -> list[int]:
    """Return the decisions of ``named``, which the decision supersedes, for which it or a later one is in force."""
    current = heads([decision_id, *named]) if named else {}
    successors = set(current.get(decision_id, []))
    return [replaced for replaced in named if successors.intersection(current.get(replaced, []))]


def superseded_among(decision_ids: Sequence[int]) -> list[int]:
    """Return the decisions that others in effect supersede, whatever their own status, in the given order."""
    current = heads(decision_ids)
    return [start for start in decision_ids if current.get(start, [start]) not in ([start], [])]


def visible_edges() -> QuerySet[DecisionEdge]:
    """Return the edges that are not in quarantine, and whose ends are not."""
    edges: QuerySet[DecisionEdge] = DecisionEdge.objects.all()
    for field in ("event", "from_id", "to_id"):
        edges = outside_quarantine(edges, field)
    return edges


def path_between(start: int, end: int) -> list[int]:
    """Return the ids on a shortest path along the edges; empty if there is none.

    Quarantined edges count too: lifting a quarantine must not close a cycle.
    """
    steps = {step.id: step for step in _walk(start, _reached(start, "from_id", "to_id", "true"))}
    if end not in steps and end != start:
        return []
    path = [end]
    while path[-1] != start:
        path.append(steps[path[-1]].via)
    return path[::-1]


# All edges of lineage reachable from a decision, in one query.
def _reached(decision_id: int, near: str, far: str, condition: str = VISIBLE) -> list[tuple[int, str, int]]:
    following = f"decisions_decisionedge e ON e.{near} = reach.id AND e.relation IN {_LINEAGE} AND {condition}"
    return rows.fetch(
        f"WITH RECURSIVE reach(id) AS (VALUES (CAST(%s AS bigint)) UNION SELECT e.{far} FROM reach JOIN {following}) "
        f"SELECT e.from_id, e.relation, e.to_id FROM reach JOIN {following}",
        [decision_id],
    )


# Breadth first, so that each depth is minimal.
def _walk(start: int, edges: Iterable[tuple[int, str, int]]) -> list[LineageStep]:
    following: dict[int, list[tuple[str, int]]] = {}
    for near, relation, far in edges:
        following.setdefault(near, []).append((relation, far))
    seen, steps, queue = {start}, [], deque([(start, 0)])
    while queue:
        here, depth = queue.popleft()
        for relation, target in sorted(following.get(here, ()), key=lambda edge: -edge[1]):
            if target not in seen:
                seen.add(target)
                steps.append(LineageStep(target, depth + 1, relation, here))
                queue.append((target, depth + 1))
    return steps
