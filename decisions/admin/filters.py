"""The filters of the list of decisions."""

from __future__ import annotations

from typing import Any

from django.db.models import Count, Q, QuerySet
from django.http import HttpRequest
from django.utils.text import Truncator

from decisions.models import Decision, DecisionStatus, Impact
from memoryhub.core.admin import DefaultFilter, ValueFilter, value_filter
from sessions_app.models import Iteration

_OFFERED = 20
_ITERATIONS = 8
_LABEL = 40


StatusFilter = value_filter("status", DecisionStatus.choices)
ImpactFilter = value_filter("impact", tuple(reversed(Impact.choices)))


class ReviewFilter(DefaultFilter):
    title = "review"
    parameter_name = "review"
    options = {"any": "All", "open": "To review"}
    conditions = {"open": ~Q(review="")}


class _UsedFilter(ValueFilter):
    """Decisions with one word in a field; those on most decisions are offered."""

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Return the 20 words on most decisions, of those on more than one, and the one in use."""
        words = used_words(self.field, at_least=2)
        used = dict(super().lookups(request, model_admin))
        return list({**used, **{word: word for word in words}}.items())


class PhaseFilter(_UsedFilter):
    title = "phase"
    parameter_name = "phase"
    field = "phase"


class TopicFilter(_UsedFilter):
    title = "topic"
    parameter_name = "topic"
    field = "topic"


class IterationFilter(ValueFilter):
    title = "iteration"
    parameter_name = "iteration"
    field = "iteration_id"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        latest = Iteration.objects.order_by("-id")[:_ITERATIONS]
        named = {str(each.id): f"#{each.id} {each.description or each.command}" for each in latest}
        offered = {value: Truncator(name).chars(_LABEL) for value, name in named.items()}
        used = {value: f"#{value}" for value, _ in super().lookups(request, model_admin)}
        return list({**used, **offered}.items())

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Keep decisions of the chosen iteration; an address that names no number keeps none."""
        value = self.value() or ""
        return super().queryset(request, queryset) if value.isdecimal() or not value else queryset.none()


def used_words(field: str, *, at_least: int = 1) -> list[str]:
    """Return what stands in a field of most decisions, and of so many at least: 20 words at most, none empty."""
    used = Decision.objects.exclude(**{field: ""}).values_list(field).annotate(count=Count("id"))
    used = used.filter(count__gte=at_least)
    return [word for word, _ in used.order_by("-count", field)[:_OFFERED]]
