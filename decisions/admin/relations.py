"""How one decision stands to others, and what else is related to it."""

from __future__ import annotations

from typing import Any

from django.db.models import Q

from decisions.admin import marks
from decisions.models import Decision, DecisionEdge, EdgeRelation

MAX_SHOWN = 100
_THE_OTHER_WAY = {
    EdgeRelation.SUPERSEDES: "superseded by",
    EdgeRelation.REFINES: "refined by",
    EdgeRelation.DEPENDS_ON: "needed by",
    EdgeRelation.CONFLICTS_WITH: "conflicts with",
    EdgeRelation.RELATES_TO: "relates to",
}
_OFFERED = [*(each for each in EdgeRelation if each is not EdgeRelation.SUPERSEDES), EdgeRelation.SUPERSEDES]
"""The one that changes the other's status comes last."""


def edges_shown(decision: Decision) -> dict[str, Any]:
    """Return the edges of both ways, those that it names itself first, at most 100, and how many are left out."""
    edges = DecisionEdge.objects.filter(Q(from_id=decision.id) | Q(to_id=decision.id))
    found = list(edges.order_by("event", "relation").values_list("from_id", "relation", "to_id")[: MAX_SHOWN + 1])
    order = list(EdgeRelation)
    shown = sorted(found[:MAX_SHOWN], key=lambda edge: (edge[0] != decision.id, order.index(EdgeRelation(edge[1]))))
    ends = {start if end == decision.id else end for start, _, end in shown}
    known = {each.id: each for each in Decision.objects.filter(id__in=ends).only("title", "status", "decided_at")}
    return {
        "edges": [_shown(edge, decision.id, known) for edge in shown],
        "edges_cut": MAX_SHOWN if len(found) > MAX_SHOWN else 0,
        "edge_choices": [(each.value, str(each.label).lower()) for each in _OFFERED],
    }


def _shown(edge: tuple[int, str, int], decision_id: int, known: dict[int, Decision]) -> dict[str, Any]:
    start, name, end = edge
    relation = EdgeRelation(name)
    is_out = start == decision_id
    other = known[end if is_out else start]
    return {
        "name": str(relation.label).lower() if is_out else _THE_OTHER_WAY[relation],
        "id": other.id,
        "title": other.title,
        "struck": marks.is_struck(other.status),
        "mark": marks.status(other.status),
        "decided_at": other.decided_at,
    }
