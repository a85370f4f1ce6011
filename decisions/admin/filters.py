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
    title = "recheck"
    parameter_name = "review"
    options = {"any": "All", "open": "Needs recheck"}
    conditions = {"open": ~Q(review="")}


class _UsedFilter(ValueFilter):
    """Offers the 20 most used values of a field, and the selected one."""

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
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
        named = {
            str(iteration.id): f"#{iteration.id} {iteration.description or iteration.command}" for iteration in latest
        }
        offered = {value: Truncator(name).chars(_LABEL) for value, name in named.items()}
        used = {value: f"#{value}" for value, _ in super().lookups(request, model_admin)}
        return list({**used, **offered}.items())

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = self.value() or ""
        return super().queryset(request, queryset) if value.isdecimal() or not value else queryset.none()


def used_words(field: str, *, at_least: int = 1) -> list[str]:
    """Return the 20 most used values of a field that at least so many decisions have."""
    used = Decision.objects.exclude(**{field: ""}).values_list(field).annotate(count=Count("id"))
    used = used.filter(count__gte=at_least)
    return [word for word, _ in used.order_by("-count", field)[:_OFFERED]]
