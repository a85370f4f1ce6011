"""The admin of decisions, and the page of one: its texts, evidence and lineage."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from django.contrib import admin
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, path
from django.views.decorators.http import require_POST

from decisions.admin import listing
from decisions.admin.editing import DecisionEditing
from decisions.events import DECISION_MARKED
from decisions.lineage_svg import draw_lineage
from decisions.models import (
    LINEAGE,
    NEVER_ACCEPTED,
    ArtifactKind,
    Decision,
    DecisionEdge,
    DecisionStatus,
    EdgeRelation,
    LinkType,
)
from decisions.selectors.decisions import views
from decisions.selectors.reading import lineage_of
from memories.admin.relations import shown_of
from memories.admin.rendering import render
from memoryhub.core.admin import needs
from memoryhub.core.admin.cells import counted
from memoryhub.core.admin.diagram import Edge
from memoryhub.core.log.quarantine import quarantined_among
from memoryhub.core.models import RawEvent
from memoryhub.core.permissions import Act
from sessions_app.models import Iteration, Turn

MAX_SHOWN = 100
_INVERSE_NAMES = {
    EdgeRelation.SUPERSEDES: "superseded by",
    EdgeRelation.REFINES: "refined by",
    EdgeRelation.DEPENDS_ON: "needed by",
    EdgeRelation.CONFLICTS_WITH: "conflicts with",
    EdgeRelation.RELATES_TO: "relates to",
}
# "supersedes" changes the other decision's status, so it comes last.
_OFFERED = [
    *(relation for relation in EdgeRelation if relation is not EdgeRelation.SUPERSEDES),
    EdgeRelation.SUPERSEDES,
]


def edges_shown(decision: Decision) -> dict[str, Any]:
    """Return at most 100 edges in both directions, the decision's own first."""
    edges = DecisionEdge.objects.filter(Q(from_id=decision.id) | Q(to_id=decision.id))
    found = list(edges.order_by("event", "relation").values_list("from_id", "relation", "to_id")[: MAX_SHOWN + 1])
    order = list(EdgeRelation)
    shown = sorted(found[:MAX_SHOWN], key=lambda edge: (edge[0] != decision.id, order.index(EdgeRelation(edge[1]))))
    ends = {start if end == decision.id else end for start, _, end in shown}
    others = Decision.objects.only("title", "status", "decided_at").in_bulk(ends)
    quarantined = quarantined_among(list(ends))
    return {
        "edges": [_shown(edge, decision.id, others, quarantined) for edge in shown],
        "edges_cut": MAX_SHOWN if len(found) > MAX_SHOWN else 0,
        "edge_choices": [(relation.value, str(relation.label).lower()) for relation in _OFFERED],
    }


def _shown(
    edge: tuple[int, str, int], decision_id: int, others: dict[int, Decision], quarantined: set[int]
) -> dict[str, Any]:
    start, name, end = edge
    relation = EdgeRelation(name)
    is_out = start == decision_id
    other = others[end if is_out else start]
    return {
        "name": str(relation.label).lower() if is_out else _inverse_name(relation, other.status),
        "start": start,
        "relation": name,
        "end": end,
        "id": other.id,
        "title": other.title,
        "struck": listing.is_struck(other.status),
        "mark": listing.status(other.status, is_quarantined=other.id in quarantined),
        "decided_at": other.decided_at,
    }


def _inverse_name(relation: EdgeRelation, status: str) -> str:
    if relation is EdgeRelation.SUPERSEDES and status in NEVER_ACCEPTED:
        return f"{status} successor"
    return _INVERSE_NAMES[relation]


def lineage_shown(decision: Decision) -> dict[str, Any]:
    """Return the drawing, if there is a lineage, and its steps as lists."""
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
        "drawing": draw_lineage(shown, _edges_among([step["id"] for step in shown]), decision.id) if sides else None,
        "before": [_step_row(step, named_by=True) for step in found["ancestors"]],
        "after": [_step_row(step, named_by=False) for step in found["descendants"]],
        "hidden": _hidden(found),
        "heads": [head for head in found["heads"] if head["id"] != decision.id],
    }


def _edges_among(ids: list[int]) -> list[Edge]:
    found = DecisionEdge.objects.filter(relation__in=LINEAGE, from_id__in=ids, to_id__in=ids)
    return list(found.values_list("from_id", "relation", "to_id"))


def _step_row(step: dict[str, Any], *, named_by: bool) -> dict[str, Any]:
    relation = str(EdgeRelation(step["relation"]).label).lower()
    link = f"#{step['via']} {relation} it" if named_by else f"it {relation} #{step['via']}"
    return {**step, "link": link, "mark": listing.status(step["status"])}


def _hidden(lineage: dict[str, Any]) -> str:
    hidden = [
        counted(lineage[f"{name}_count"] - len(lineage[f"{name}s"]), noun)
        for name, noun in (("ancestor", "earlier decision"), ("descendant", "later decision"))
        if lineage[f"{name}_count"] > len(lineage[f"{name}s"])
    ]
    return f"Not shown: {' and '.join(hidden)}. Open the first or last decision to see more." if hidden else ""


_TEXTS = (("context", "Context"), ("chosen", "Decision"), ("rationale", "Rationale"))
_MARKS = (DecisionStatus.ACCEPTED, DecisionStatus.DEPRECATED, DecisionStatus.REJECTED)
_COMMITS_SHOWN = 50
_KINDS = {
    ArtifactKind.FILE_PATH: "Files",
    ArtifactKind.PR: "Pull requests",
    ArtifactKind.VALIDATION: "Validations",
    ArtifactKind.NOTE: "Notes",
    ArtifactKind.COMMIT: "Commits not recorded yet",
}
# Values and labels of the form that adds evidence.
EVIDENCE = [
    *((f"commits:{link.value}", f"Commit that {str(link.label).lower()} it") for link in LinkType),
    ("files", "File"),
    ("prs", "Pull request"),
    ("validations", "Validation"),
    ("notes", "Note"),
]


@admin.register(Decision)
class DecisionAdmin(DecisionEditing):
    stream_kind = "decision"
    detail_template = "admin/decisions/detail.html"
    export_fields = (
        "id",
        "title",
        "status",
        "chosen",
        "context",
        "rationale",
        "alternatives",
        "impact",
        "phase",
        "topic",
        "author",
        "source",
        "decided_at",
    )

    def get_urls(self) -> list[URLPattern]:
        def page(name: str, view: Callable[..., HttpResponse]) -> URLPattern:
            wrapped = self.admin_site.admin_view(view)
            return path(f"<path:object_id>/{name}/", wrapped, name=f"decisions_decision_{name}")

        own = [
            page("supersede", needs(Act.WRITE, self.supersede_view)),
            page("mark", require_POST(needs(Act.WRITE, self.mark_view))),
            page("link", require_POST(needs(Act.WRITE, self.link_view))),
            page("unlink", require_POST(needs(Act.WRITE, self.unlink_view))),
            page("evidence", require_POST(needs(Act.WRITE, self.evidence_view))),
            page("lookup", self.lookup_view),
        ]
        return [*own, *super().get_urls()]

    def detail(self, request: HttpRequest, found: Decision) -> dict[str, Any]:
        (view,) = views([found], with_heads=False)
        return {
            "title": found.title,
            "mark": listing.status(found.status, is_quarantined=found.id in quarantined_among([found.id])),
            "impact": listing.impact(found.impact),
            "struck": listing.is_struck(found.status),
            "texts": [(name, label, render(getattr(found, name))) for name, label in _TEXTS if getattr(found, name)],
            "event": RawEvent.objects.filter(position=found.id).defer("payload_json").first(),
            "turn": Turn.objects.filter(session_id=found.session_id, turn_id=found.turn_id).only("id").first(),
            "iteration": Iteration.objects.filter(id=found.iteration_id).first() if found.iteration_id else None,
            "marked": _marked(found),
            "mark_choices": [status for status in _MARKS if status != found.status],
            "evidence_choices": EVIDENCE,
            "related": shown_of(found.id),
            **_evidence(view),
            **edges_shown(found),
            **lineage_shown(found),
        }


def _evidence(view: dict[str, Any]) -> dict[str, Any]:
    """Return the commits, latest first, and other evidence by kind."""
    artifacts = [
        (label, kind.value, [artifact["value"] for artifact in view["artifacts"] if artifact["kind"] == kind])
        for kind, label in _KINDS.items()
    ]
    commits = [{**commit, "label": str(LinkType(commit["link_type"]).label).lower()} for commit in view["commits"]]
    return {
        "commits": commits[:_COMMITS_SHOWN],
        "hidden_commits": max(0, len(commits) - _COMMITS_SHOWN),
        "artifacts": [(label, kind, values) for label, kind, values in artifacts if values],
    }


def _marked(decision: Decision) -> dict[str, Any] | None:
    """Return who set the current status, when and why; None if it was recorded with it."""
    marked = RawEvent.objects.filter(stream_id=f"decision:{decision.id}", event_type=DECISION_MARKED.name)
    for event in marked.order_by("-stream_seq"):
        payload = json.loads(event.payload_json or "{}")
        if payload.get("status") == decision.status:
            return {"actor": event.actor, "at": event.occurred_at, "reason": payload.get("reason", "")}
    return None
