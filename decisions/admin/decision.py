"""The admin of decisions, and the page of one: what was decided, what is evidence of it, how it came about."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, path
from django.views.decorators.http import require_POST

from decisions.admin import marks
from decisions.admin.editing import DecisionEditing
from decisions.admin.lineage import lineage_shown
from decisions.admin.relations import edges_shown
from decisions.events import DECISION_MARKED
from decisions.models import ArtifactKind, Decision, DecisionStatus, LinkType
from decisions.selectors.decisions import views
from memories.admin.relations import shown_of
from memories.admin.rendering import render
from memoryhub.core.admin import needs
from memoryhub.core.models import RawEvent
from memoryhub.core.permissions import Act
from sessions_app.models import Iteration, Turn

_TEXTS = (("context", "Context"), ("chosen", "Decision"), ("rationale", "Rationale"))
_MARKS = (DecisionStatus.ACCEPTED, DecisionStatus.DEPRECATED, DecisionStatus.REJECTED)
_COMMITS_SHOWN = 50
_KINDS = {
    ArtifactKind.FILE_PATH: "Files",
    ArtifactKind.PR: "Pull requests",
    ArtifactKind.VALIDATION: "Validations",
    ArtifactKind.NOTE: "Notes",
    ArtifactKind.COMMIT: "Commits that are not recorded yet",
}
EVIDENCE = [
    *((f"commits:{link.value}", f"Commit that {str(link.label).lower()} it") for link in LinkType),
    ("files", "File"),
    ("prs", "Pull request"),
    ("validations", "Validation"),
    ("notes", "Note"),
]
"""What can be added, as the form names it."""


@admin.register(Decision)
class DecisionAdmin(DecisionEditing):
    """Decisions."""

    stream_kind = "decision"
    detail_template = "admin/decisions/detail.html"

    def get_urls(self) -> list[URLPattern]:
        """Add what can be done with one decision."""

        def page(name: str, view: Callable[..., HttpResponse]) -> URLPattern:
            wrapped = self.admin_site.admin_view(view)
            return path(f"<path:object_id>/{name}/", wrapped, name=f"decisions_decision_{name}")

        own = [
            page("supersede", needs(Act.WRITE, self.supersede_view)),
            page("mark", require_POST(needs(Act.WRITE, self.mark_view))),
            page("link", require_POST(needs(Act.WRITE, self.link_view))),
            page("evidence", require_POST(needs(Act.WRITE, self.evidence_view))),
            page("lookup", self.lookup_view),
        ]
        return [*own, *super().get_urls()]

    def detail(self, request: HttpRequest, found: Decision) -> dict[str, Any]:
        """Return the rendered texts, the evidence, the lineage and the edges."""
        (view,) = views([found], with_heads=False)
        return {
            "title": found.title,
            "mark": marks.status(found.status),
            "impact": marks.impact(found.impact),
            "struck": marks.is_struck(found.status),
            "texts": [(name, label, render(getattr(found, name))) for name, label in _TEXTS if getattr(found, name)],
            "event": RawEvent.objects.filter(position=found.id).defer("payload_json").first(),
            "turn": Turn.objects.filter(session_id=found.session_id, turn_id=found.turn_id).only("id").first(),
            "iteration": Iteration.objects.filter(id=found.iteration_id).first() if found.iteration_id else None,
            "marked": _marked(found),
            "mark_choices": [each for each in _MARKS if each != found.status],
            "evidence_choices": EVIDENCE,
            "related": shown_of(found.id),
            **_evidence(view),
            **edges_shown(found),
            **lineage_shown(found),
        }


def _evidence(view: dict[str, Any]) -> dict[str, Any]:
    """Return the commits, latest first, and what else is evidence, by kind."""
    artifacts = [
        (label, kind.value, [each["value"] for each in view["artifacts"] if each["kind"] == kind])
        for kind, label in _KINDS.items()
    ]
    commits = [{**each, "label": str(LinkType(each["link_type"]).label).lower()} for each in view["commits"]]
    return {
        "commits": commits[:_COMMITS_SHOWN],
        "hidden_commits": max(0, len(commits) - _COMMITS_SHOWN),
        "artifacts": [(label, kind, values) for label, kind, values in artifacts if values],
    }


def _marked(decision: Decision) -> dict[str, Any] | None:
    """Return who marked the decision last as it stands now, when and why; None where it stands as it was recorded."""
    marked = RawEvent.objects.filter(stream_id=f"decision:{decision.id}", event_type=DECISION_MARKED.name)
    for event in marked.order_by("-stream_seq"):
        payload = json.loads(event.payload_json or "{}")
        if payload.get("status") == decision.status:
            return {"actor": event.actor, "at": event.occurred_at, "reason": payload.get("reason", "")}
    return None
