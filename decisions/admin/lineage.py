"""The lineage of one decision as its page shows it: drawn, and as a list."""

from __future__ import annotations

from typing import Any

from decisions.admin import marks
from decisions.lineage_svg import Edge, draw_lineage
from decisions.models import LINEAGE, Decision, DecisionEdge, EdgeRelation
from decisions.selectors.reading import lineage_of
from memoryhub.core.admin.cells import counted


def lineage_shown(decision: Decision) -> dict[str, Any]:
    """Return the drawing, the steps of each side as a list, and what is left out; without a lineage, no drawing."""
    found = lineage_of(decision.id)
    sides = [*found["ancestors"], *found["descendants"]]
    this = {
        "id": decision.id,
        "title": decision.title,
        "status": decision.status,
        "decided_at": decision.decided_at.date().isoformat(),
    }
    shown = [this, *sides]
    return {
        "drawing": draw_lineage(shown, _edges_among([each["id"] for each in shown]), decision.id) if sides else None,
        "before": [_said(step, named_by=True) for step in found["ancestors"]],
        "after": [_said(step, named_by=False) for step in found["descendants"]],
        "hidden": _hidden(found),
        "heads": [head for head in found["heads"] if head["id"] != decision.id],
    }


def _edges_among(ids: list[int]) -> list[Edge]:
    """Return the edges of lineage between these decisions."""
    found = DecisionEdge.objects.filter(relation__in=LINEAGE, from_id__in=ids, to_id__in=ids)
    return list(found.values_list("from_id", "relation", "to_id"))


def _said(step: dict[str, Any], *, named_by: bool) -> dict[str, Any]:
    relation = str(EdgeRelation(step["relation"]).label).lower()
    told = f"#{step['via']} {relation} it" if named_by else f"it {relation} #{step['via']}"
    return {**step, "told": told, "mark": marks.status(step["status"])}


def _hidden(lineage: dict[str, Any]) -> str:
    """Return in one sentence how much is left out; nothing where all is shown."""
    left = [
        f"{counted(lineage[f'{name}_count'] - len(lineage[f'{name}s']), word)} {where}"
        for name, word, where in (("ancestor", "earlier decision", "before"), ("descendant", "later one", "after"))
        if lineage[f"{name}_count"] > len(lineage[f"{name}s"])
    ]
    return f"Farther away, and not drawn: {' and '.join(left)}. Open the farthest one to go on." if left else ""
