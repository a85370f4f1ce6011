"""The admin of decisions, and the page of one: its texts, evidence, lineage and forms."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from graphlib import TopologicalSorter
from typing import Any

from django.contrib import admin, messages
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import URLPattern, path, reverse
from django.views.decorators.http import require_POST
from pydantic import ValidationError

from decisions import services
from decisions.admin import listing
from decisions.admin.forms import MORE, RecordForm, SupersedeForm, error_text, ids_in, with_more_rows
from decisions.admin.listing import DecisionListAdmin, used_words
from decisions.edges import heads_of
from decisions.events import DECISION_MARKED
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
from decisions.present import numbers
from decisions.schemas import DecisionEvidence, DecisionLink, DecisionMark, DecisionResult, DecisionUnlink
from decisions.selectors import decision_checks, find_decisions, lineage_of, views
from memories.admin.anchors import RECHECKED, anchors_shown, save_anchors
from memories.admin.base import warn_of_redactions
from memories.admin.checks import allow_posted, shown_checks
from memories.admin.listing import mark_rows
from memories.admin.memory import plain_answer, shown_of
from memories.admin.rendering import render
from memoryhub.core import log
from memoryhub.core.admin import needs
from memoryhub.core.admin.cells import counted
from memoryhub.core.admin.schema_form import posted
from memoryhub.core.admin.svg import Edge, lay_out, wrapped
from memoryhub.core.errors import ConflictError, Gone, HubError, Invalid, NotFound
from memoryhub.core.log.quarantine import quarantined_among
from memoryhub.core.permissions import Act, require
from memoryhub.core.schemas import Command
from memoryhub.core.validation import explain
from sessions_app.models import Iteration, Turn

FORM = "admin/decisions/form.html"
_REFUSALS = (ConflictError, Invalid, NotFound)


MAX_SHOWN = 100
_INVERSE_NAMES = {
    EdgeRelation.SUPERSEDES: "superseded by",
    EdgeRelation.REFINES: "refined by",
    EdgeRelation.DEPENDS_ON: "needed by",
    EdgeRelation.CONFLICTS_WITH: "conflicts with",
    EdgeRelation.RELATES_TO: "relates to",
}
# "supersedes" changes the other decision's status, so it comes last.
_OFFERED = sorted(EdgeRelation, key=lambda relation: relation is EdgeRelation.SUPERSEDES)


def edges_shown(decision: Decision) -> dict[str, Any]:
    edges = DecisionEdge.objects.filter(Q(from_id=decision.id) | Q(to_id=decision.id))
    rows = list(edges.order_by("event", "relation").values_list("from_id", "relation", "to_id")[: MAX_SHOWN + 1])
    order = list(EdgeRelation)
    first_edges = sorted(rows[:MAX_SHOWN], key=lambda row: (row[0] != decision.id, order.index(EdgeRelation(row[1]))))
    ends = {start if end == decision.id else end for start, _, end in first_edges}
    neighbours = Decision.objects.only("title", "status", "decided_at").in_bulk(ends)
    quarantined = quarantined_among(list(ends))
    return {
        "edges": [_edge_row(edge, decision.id, neighbours, quarantined) for edge in first_edges],
        "edges_cut": MAX_SHOWN if len(rows) > MAX_SHOWN else 0,
        "edge_choices": [(relation.value, str(relation.label).lower()) for relation in _OFFERED],
    }


def _edge_row(
    edge: tuple[int, str, int], decision_id: int, neighbours: dict[int, Decision], quarantined: set[int]
) -> dict[str, Any]:
    start, name, end = edge
    relation = EdgeRelation(name)
    is_out = start == decision_id
    other = neighbours[end if is_out else start]
    label = _INVERSE_NAMES[relation]
    if is_out:
        label = str(relation.label).lower()
    elif relation is EdgeRelation.SUPERSEDES and other.status in NEVER_ACCEPTED:
        label = f"{other.status} successor"
    return {
        "name": label,
        "start": start,
        "relation": name,
        "end": end,
        "id": other.id,
        "title": other.title,
        "struck": listing.is_struck(other.status),
        "mark": listing.status(other.status, is_quarantined=other.id in quarantined),
        "decided_at": other.decided_at,
    }


def draw_lineage(decisions: Sequence[Mapping[str, Any]], edges: Iterable[Edge], current: int) -> dict[str, Any]:
    """Lay out decisions, as ``nodes`` with the earliest first, and their edges, which have no cycle.

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
    return {"nodes": nodes, "layout": layout}


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
) -> dict[str, Any]:
    number, title, status = decision["id"], decision["title"], DecisionStatus(decision["status"])
    description = [f"#{number} {title}", str(status.label).lower(), f"decided {decision['decided_at']}", *relations]
    return {
        "id": number,
        "x": place[0],
        "y": place[1],
        "status": status.value,
        "date": decision["decided_at"],
        "lines": wrapped(title),
        "description": ", ".join(description),
        "is_current": is_current,
        "is_struck": listing.is_struck(status),
    }


def lineage_shown(decision: Decision) -> dict[str, Any]:
    lineage = lineage_of(decision.id)
    sides = [*lineage["ancestors"], *lineage["descendants"]]
    this = {
        "id": decision.id,
        "title": decision.title,
        "status": decision.status,
        "decided_at": decision.decided_at.date().isoformat(),
    }
    drawing = None
    if sides:
        ids = [decision.id, *(step["id"] for step in sides)]
        edges = DecisionEdge.objects.filter(relation__in=LINEAGE, from_id__in=ids, to_id__in=ids)
        drawing = draw_lineage([this, *sides], edges.values_list("from_id", "relation", "to_id"), decision.id)
    return {
        "drawing": drawing,
        "before": [_step_row(step, named_by=True) for step in lineage["ancestors"]],
        "after": [_step_row(step, named_by=False) for step in lineage["descendants"]],
        "hidden": _hidden(lineage),
        "heads": [head for head in lineage["heads"] if head["id"] != decision.id],
    }


def _step_row(step: dict[str, Any], *, named_by: bool) -> dict[str, Any]:
    relation = str(EdgeRelation(step["relation"]).label).lower()
    link = f"#{step['via']} {relation} it" if named_by else f"it {relation} #{step['via']}"
    return {**step, "link": link, "mark": listing.status(step["status"])}


def _hidden(lineage: dict[str, Any]) -> str:
    hidden = []
    for name, noun in (("ancestor", "earlier decision"), ("descendant", "later decision")):
        more = lineage[f"{name}_count"] - len(lineage[f"{name}s"])
        if more > 0:
            hidden.append(counted(more, noun))
    if not hidden:
        return ""
    return f"Not shown: {' and '.join(hidden)}. Open the first or last decision to see more."


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
    ("checks", "Check"),
    ("notes", "Note"),
]


@admin.register(Decision)
class DecisionAdmin(DecisionListAdmin):
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

        urls = [
            page("supersede", needs(Act.WRITE, self.supersede_view)),
            page("mark", require_POST(needs(Act.WRITE, self.mark_view))),
            page("link", require_POST(needs(Act.WRITE, self.link_view))),
            page("unlink", require_POST(needs(Act.WRITE, self.unlink_view))),
            page("evidence", require_POST(needs(Act.WRITE, self.evidence_view))),
            page("allow", require_POST(needs(Act.GOVERN, self.allow_view))),
            page("lookup", self.lookup_view),
            page("anchors", require_POST(needs(Act.WRITE, self.anchors_view))),
        ]
        return [*urls, *super().get_urls()]

    def detail(self, request: HttpRequest, decision: Decision) -> dict[str, Any]:
        (view,) = views([decision], with_heads=False)
        texts = []
        for name, label in _TEXTS:
            if getattr(decision, name):
                texts.append((name, label, render(getattr(decision, name))))
        return {
            "title": decision.title,
            "mark": listing.status(decision.status, is_quarantined=decision.id in quarantined_among([decision.id])),
            "impact": listing.impact(decision.impact),
            "struck": listing.is_struck(decision.status),
            "texts": texts,
            "event": log.events().at([decision.id]).defer("payload_json").first(),
            "turn": Turn.objects.filter(session_id=decision.session_id, turn_id=decision.turn_id).only("id").first(),
            "iteration": Iteration.objects.filter(id=decision.iteration_id).first() if decision.iteration_id else None,
            "marked": _marked(decision),
            "mark_choices": [status for status in _MARKS if status != decision.status],
            "evidence_choices": EVIDENCE,
            "related": shown_of(decision.id),
            "checks": shown_checks(decision.id, decision_checks(decision.id)),
            "allow_url": reverse("admin:decisions_decision_allow", args=[decision.id]),
            "marks": mark_rows(view["marks"], besides=RECHECKED),
            "anchors_url": self.url("anchors", decision.id),
            **anchors_shown(decision.id),
            **_evidence(view),
            **edges_shown(decision),
            **lineage_shown(decision),
        }

    def add_view(self, request: HttpRequest, *_: Any, **_options: Any) -> HttpResponse:
        require(request.user, Act.WRITE)
        context = {"title": "Record a decision", "button": "Record", "here": "New", "back": self.url("changelist")}
        return self._recording(request, RecordForm, services.record_decision, context)

    def supersede_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        earlier: Decision = self.find(request, object_id)
        context = {
            "title": f"Supersede #{earlier.id}",
            "button": "Record and supersede",
            "here": "Supersede",
            "back": self.url("change", earlier.id),
            "replacements": self._replacements(earlier.id),
        }
        make = partial(SupersedeForm, earlier)
        return self._recording(request, make, services.supersede_decision, context, earlier)

    def _recording(
        self,
        request: HttpRequest,
        make: Any,
        record: Callable[..., DecisionResult],
        context: dict[str, Any],
        earlier: Decision | None = None,
    ) -> HttpResponse:
        if MORE in request.POST:
            form = with_more_rows(make, request.POST)
        else:
            form = make(posted(request))
        command = form.command()
        if command:
            try:
                return self._recorded(request, record(command=command))
            except HubError as error:
                form.refuse(error)
                if "heads" in error.data:
                    context["replacements"] = self._replacements(error.data["id"])
        topics = used_words("topic")
        return self.page(request, FORM, earlier, **context, form=form, topics=topics)

    def _replacements(self, decision_id: int) -> list[Decision]:
        return find_decisions([head for head in heads_of(decision_id) if head != decision_id])

    def _recorded(self, request: HttpRequest, result: DecisionResult) -> HttpResponse:
        effect = ""
        if result.superseded:
            effect = f", which supersedes {numbers(result.superseded)}"
        if result.supersedes_once_accepted:
            effect += f", which will supersede {numbers(result.supersedes_once_accepted)} once it is accepted"
        messages.success(request, f"Recorded #{result.id}{effect}.")
        warn_of_redactions(request, result.redacted)
        return redirect(self.url("change", result.id))

    def mark_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        fields: dict[str, Any] = {"reason": request.POST.get("reason", "").strip()}
        if "reviewed" in request.POST:
            fields["reviewed"] = True
            message = "Confirmed that the decision is still valid."
        else:
            fields["status"] = request.POST.get("status", "")
            message = f"Set the status to {dict(DecisionStatus.choices).get(fields['status'], '').lower()}."
        return self._change(request, object_id, services.mark_decision, DecisionMark, fields, message=message)

    def link_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        edge = {"relation": request.POST.get("relation", ""), "to": " ".join(ids_in(request.POST.get("to", "")))}
        return self._change(request, object_id, services.link_decisions, DecisionLink, edge, where="#edges")

    def unlink_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        edge = {name: request.POST.get(name, "") for name in ("id", "relation", "to")}
        return self._change(
            request, object_id, services.unlink_decisions, DecisionUnlink, edge, message="Removed.", where="#edges"
        )

    def evidence_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        field, _, link_type = request.POST.get("kind", "").partition(":")
        evidence: dict[str, Any] = {field: [request.POST.get("value", "").strip()]}
        if link_type:
            evidence["link_type"] = link_type
        return self._change(request, object_id, services.add_evidence, DecisionEvidence, evidence, where="#evidence")

    def allow_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        decision: Decision = self.find(request, object_id)
        allow_posted(request, decision_checks(decision.id))
        return redirect(f"{self.url('change', decision.id)}#checks")

    def anchors_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        decision: Decision = self.find(request, object_id)
        save_anchors(request, decision.id)
        return redirect(f"{self.url('change', decision.id)}#anchors")

    def lookup_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        self.find(request, object_id)
        typed = "".join(ids_in(request.GET.get("target", "")))
        if not (typed.isascii() and typed.isdecimal() and len(typed) <= 15):
            return plain_answer("Enter the number of a decision, such as #412.", is_found=False)
        try:
            (decision,) = find_decisions([int(typed)])
        except (NotFound, Gone) as error:
            return plain_answer(error_text(error), is_found=False)
        return plain_answer(f"{decision.get_status_display()}: {decision.title}", is_found=True)

    def _change(
        self,
        request: HttpRequest,
        object_id: str,
        service: Callable[..., DecisionResult],
        schema: type[Command],
        fields: dict[str, Any],
        *,
        message: str = "Added.",
        where: str = "",
    ) -> HttpResponse:
        decision: Decision = self.find(request, object_id)
        try:
            result = service(command=schema.model_validate({"id": decision.id, **fields}))
        except ValidationError as error:
            messages.error(request, error_text(Invalid(explain(error))))
        except _REFUSALS as refusal:
            messages.error(request, error_text(refusal))
        else:
            messages.success(request, message if result.is_new else "Nothing changed: it already exists.")
            warn_of_redactions(request, result.redacted)
        return redirect(f"{self.url('change', decision.id)}{where}")


def _evidence(view: dict[str, Any]) -> dict[str, Any]:
    artifacts = []
    for kind, label in _KINDS.items():
        values = [artifact["value"] for artifact in view["artifacts"] if artifact["kind"] == kind]
        if values:
            artifacts.append((label, kind.value, values))
    commits = [{**commit, "label": str(LinkType(commit["link_type"]).label).lower()} for commit in view["commits"]]
    return {
        "commits": commits[:_COMMITS_SHOWN],
        "hidden_commits": max(0, len(commits) - _COMMITS_SHOWN),
        "artifacts": artifacts,
    }


def _marked(decision: Decision) -> dict[str, Any] | None:
    for event in log.events().of_stream(f"decision:{decision.id}").of_type(DECISION_MARKED).reverse():
        payload = json.loads(event.payload_json or "{}")
        if payload.get("status") == decision.status:
            return {"actor": event.actor, "at": event.occurred_at, "reason": payload.get("reason", "")}
    return None
