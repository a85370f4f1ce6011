"""The list of decisions: its columns, and its search by relevance."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib import admin
from django.db.models import Count, QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from decisions.admin.filters import (
    AuthorFilter,
    ImpactFilter,
    IterationFilter,
    PhaseFilter,
    ReviewFilter,
    StatusFilter,
    TopicFilter,
)
from decisions.models import CommitLink, Decision, DecisionStatus, Impact
from memories.admin.listing import BEST, MAX_QUERY, RankedChangeList, in_order
from memories.schemas import MemorySearch, SearchSourceName
from memories.selectors import search
from memoryhub.core.admin import HubChangeList, HubModelAdmin, cells
from memoryhub.core.log.quarantine import quarantined_among
from memoryhub.core.permissions import Act, may

_FIRST = 160


def status(value: str, *, is_quarantined: bool = False) -> SafeString:
    label = str(DecisionStatus(value).label)
    return (
        cells.badge("quarantined", f"In quarantine, was {label.lower()}")
        if is_quarantined
        else cells.badge(value, label)
    )


def impact(value: str) -> SafeString:
    return cells.badge(f"impact-{value}", str(Impact(value).label))


def warnings(decision: Decision) -> SafeString:
    return cells.badge("review", "Needs recheck") if decision.review else SafeString()


def is_struck(value: str) -> bool:
    """Return whether a decision with this status is no longer valid."""
    return value in (DecisionStatus.SUPERSEDED, DecisionStatus.REJECTED)


def brief(text: str) -> str:
    """Return the first paragraph as one line of at most 160 characters, without Markdown syntax."""
    paragraph = text.strip().split("\n\n", 1)[0]
    line = " ".join(paragraph.split()).lstrip("#>- ").replace("**", "").replace("`", "")
    return f"{line[:_FIRST].rstrip()} …" if len(line) > _FIRST else line


_NOT_LISTED = ("context", "rationale", "alternatives", "source")


class DecisionChangeList(RankedChangeList):
    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        snippets: dict[int, str] = getattr(request, "decision_snippets", {})
        decisions = list(self.result_list)
        links = CommitLink.objects.filter(decision_id__in=[decision.id for decision in decisions])
        counts = dict(links.values_list("decision_id").annotate(commits=Count("commit_id")))
        quarantined = quarantined_among([decision.id for decision in decisions])
        for decision in decisions:
            decision.commit_count = counts.get(decision.id, 0)
            decision.snippet = snippets.get(decision.id, "")
            decision.is_quarantined = decision.id in quarantined
        self.result_list = decisions


class DecisionListAdmin(HubModelAdmin):
    list_display = ("number", "about", "state", "weight", "decided", "commits", "author")
    list_display_links = ("number",)
    list_filter = (StatusFilter, ReviewFilter, ImpactFilter, PhaseFilter, TopicFilter, AuthorFilter, IterationFilter)
    search_fields = ("title",)
    search_help_text = "Search in your own words; best matches first"
    quarantine_field = "pk"
    ordering: ClassVar[tuple[str, ...]] = ("-id",)
    change_list_template = "admin/decisions/change_list.html"
    empty_title = "No decisions yet"
    empty_text = "Record the first one, connect an agent over MCP, or run “memory-hub import adr” to import records."

    def has_add_permission(self, request: HttpRequest) -> bool:
        return may(request.user, Act.WRITE)

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[HubChangeList]:
        return DecisionChangeList

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        return super().changelist_view(request, {"add_label": "Record a decision", **(extra_context or {})})

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        decisions = super().get_queryset(request)
        named = request.resolver_match and request.resolver_match.url_name
        return decisions.defer(*_NOT_LISTED) if named == "decisions_decision_changelist" else decisions

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        if not search_term.strip():
            return queryset, False
        # The facets ask for the same results again
        if not hasattr(request, "decision_snippets"):
            question = MemorySearch(query=search_term[:MAX_QUERY], sources=[SearchSourceName.DECISION], limit=BEST)
            found = search(command=question, whole_store=True).results
            request.decision_snippets = {hit["id"]: hit["snippet"] for hit in found}  # type: ignore[attr-defined]
        ids = list(request.decision_snippets)  # type: ignore[attr-defined]
        return in_order(request, queryset.filter(id__in=ids), ids), False

    @admin.display(description="#", ordering="id")
    def number(self, decision: Decision) -> SafeString:
        return cells.code(f"#{decision.id}")

    @admin.display(description="decision", ordering="title")
    def about(self, decision: Decision) -> SafeString:
        css = "title struck" if is_struck(decision.status) else "title"
        title = cells.link(self.url("change", decision.id), decision.title, css)
        under = getattr(decision, "snippet", "") or brief(decision.chosen)
        return format_html('{} {}<span class="snippet">{}</span>', title, warnings(decision), under)

    @admin.display(description="status", ordering="status")
    def state(self, decision: Decision) -> SafeString:
        return status(decision.status, is_quarantined=getattr(decision, "is_quarantined", False))

    @admin.display(description="impact")
    def weight(self, decision: Decision) -> SafeString:
        return impact(decision.impact)

    @admin.display(description="decided", ordering="decided_at")
    def decided(self, decision: Decision) -> SafeString:
        return cells.moment(decision.decided_at)

    @admin.display(description="commits")
    def commits(self, decision: Decision) -> Any:
        count: int = decision.commit_count  # type: ignore[attr-defined]
        noun = "commit" if count == 1 else "commits"
        return format_html('{}<span class="noun"> {}</span>', f"{count:,}", noun) if count else cells.NONE
