from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django.db.models import Count, Q, QuerySet
from django.http import HttpRequest
from django.utils.text import Truncator

from decisions.models import Decision, DecisionStatus, Impact
from memoryhub.core.admin import DefaultFilter, ValueFilter, value_filter
from sessions_app.models import Iteration

_OFFERED = 20
_LABEL = 40
_DIGITS = 16


StatusFilter = value_filter("status", DecisionStatus.choices)
ImpactFilter = value_filter("impact", tuple(reversed(Impact.choices)))


class ReviewFilter(DefaultFilter):
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
        found = list(values)
        numbers = [value for value in found if value.isdecimal() and len(value) <= _DIGITS]
        named = {str(iteration.id): str(iteration) for iteration in Iteration.objects.filter(id__in=numbers)}
        return {value: Truncator(named.get(value, f"#{value}")).chars(_LABEL) for value in found}

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        valid = all(value.isdecimal() and len(value) <= _DIGITS for value in self.values)
        return super().queryset(request, queryset) if valid else queryset.none()


def used_words(field: str, *, at_least: int = 1) -> list[str]:
    """Return the 20 most used values of a field that at least so many decisions have."""
    used = Decision.objects.exclude(**{field: ""}).values_list(field).annotate(count=Count("id"))
    used = used.filter(count__gte=at_least)
    return [word for word, _ in used.order_by("-count", field)[:_OFFERED]]
