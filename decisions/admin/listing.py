"""The list of decisions: its columns, its filters, and its search by relevance."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from django.contrib import admin
from django.db.models import Count, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import Truncator

from decisions.models import CommitLink, Decision, DecisionStatus, Impact
from memories.admin.listing import BEST, MAX_QUERY, RankedChangeList, in_order, mark_badges, marks_data
from memories.schemas import MemorySearch, SearchSourceName
from memories.selectors import search
from memoryhub.core.admin import DefaultFilter, HubChangeList, HubModelAdmin, ValueFilter, cells, value_filter
from memoryhub.core.log.quarantine import quarantined_among
from memoryhub.core.permissions import Act, may
from sessions_app.models import Iteration

_OFFERED = 20
_LABEL = 40
_DIGITS = 16


StatusFilter = value_filter("status", DecisionStatus.choices)
ImpactFilter = value_filter("impact", tuple(reversed(Impact.choices)))


class RecheckFilter(DefaultFilter):
    title = "recheck"
    parameter_name = "review"
    options = {"any": "All", "open": "Needs recheck"}
    conditions = {"open": ~Q(review="")}


PhaseFilter = value_filter("phase")
TopicFilter = value_filter("topic", wide=True)
AuthorFilter = value_filter("author")


class IterationFilter(ValueFilter):
    title = "iteration"
    parameter_name = "iteration"
    field = "iteration_id"
    wide = True

    def count_alone(self, rows: QuerySet[Any], most: int) -> dict[str, int]:
        counted = rows.filter(iteration_id__isnull=False).order_by().values_list("iteration_id")
        return {str(number): total for number, total in counted.annotate(total=Count("pk")).order_by("-pk")[:most]}

    def labels(self, values: Iterable[str]) -> Mapping[str, str]:
        offered = list(values)
        numbers = [value for value in offered if value.isdecimal() and len(value) <= _DIGITS]
        named = {str(iteration.id): str(iteration) for iteration in Iteration.objects.filter(id__in=numbers)}
        return {value: Truncator(named.get(value, f"#{value}")).chars(_LABEL) for value in offered}

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        valid = all(value.isdecimal() and len(value) <= _DIGITS for value in self.values)
        return super().queryset(request, queryset) if valid else queryset.none()


def used_words(field: str) -> list[str]:
    used = Decision.objects.exclude(**{field: ""}).values(field).annotate(count=Count("id"))
    return list(used.order_by("-count", field).values_list(field, flat=True)[:_OFFERED])


_FIRST = 160


def status(value: str, *, is_quarantined: bool = False) -> SafeString:
    label = str(DecisionStatus(value).label)
    if is_quarantined:
        return cells.badge("quarantined", f"In quarantine, was {label.lower()}")
    return cells.badge(value, label)


def impact(value: str) -> SafeString:
    return cells.badge(f"impact-{value}", str(Impact(value).label))


def warnings(decision: Decision) -> SafeString:
    return cells.badge("review", "Needs recheck") if decision.review else SafeString()


def is_struck(value: str) -> bool:
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
        ids = [decision.id for decision in decisions]
        links = CommitLink.objects.filter(decision_id__in=ids)
        counts = dict(links.values_list("decision_id").annotate(commits=Count("commit_id")))
        quarantined = quarantined_among(ids)
        marks = marks_data(ids)
        for decision in decisions:
            decision.commit_count = counts.get(decision.id, 0)
            decision.snippet = snippets.get(decision.id, "")
            decision.is_quarantined = decision.id in quarantined
            decision.mark_badges = mark_badges(marks.get(decision.id, ()))
        self.result_list = decisions


class DecisionListAdmin(HubModelAdmin):
    list_display = ("number", "about", "state", "weight", "decided", "commits", "author")
    list_display_links = ("number",)
    list_filter = (StatusFilter, RecheckFilter, ImpactFilter, PhaseFilter, TopicFilter, AuthorFilter, IterationFilter)
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
            hits = search(command=question, whole_store=True).results
            request.decision_snippets = {hit["id"]: hit["snippet"] for hit in hits}  # type: ignore[attr-defined]
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
        marks = format_html("{} {}", warnings(decision), getattr(decision, "mark_badges", ""))
        return format_html('{} {}<span class="snippet">{}</span>', title, marks, under)

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
