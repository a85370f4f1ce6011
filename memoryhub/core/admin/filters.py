from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

from django.contrib.admin import SimpleListFilter
from django.contrib.admin.views.main import ChangeList
from django.db.models import Q, QuerySet
from django.http import HttpRequest

from memoryhub.core import clock

_SPANS = {"1": "Past day", "7": "Past 7 days", "30": "Past 30 days", "365": "Past year"}


class SinceFilter(SimpleListFilter):
    title = "time"
    parameter_name = "since"
    field = "created_at"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return list(_SPANS.items())

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        days = self.value()
        if days not in _SPANS:
            return queryset
        return queryset.filter(**{f"{self.field}__gte": clock.now() - timedelta(days=int(days))})


class ValueFilter(SimpleListFilter):
    # Without ``offered``, the filter is shown only while a link's value is active.
    field = ""
    offered: Sequence[tuple[Any, Any]] = ()

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        if self.offered:
            return [(str(value), str(label)) for value, label in self.offered]
        value = request.GET.get(self.parameter_name or "")
        return [(value, value)] if value else []

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(**{self.field: self.value()}) if self.value() else queryset


def value_filter(name: str, offered: Sequence[tuple[Any, Any]] = (), *, field: str = "") -> type[ValueFilter]:
    """Return a list filter by a field.

    Args:
        name: the filter's title and query parameter.
        offered: values and labels.
        field: default: ``name``.
    """
    members = {"title": name, "parameter_name": name, "field": field or name, "offered": offered}
    return type(f"{name.title()}Filter", (ValueFilter,), members)


class DefaultFilter(SimpleListFilter):
    # The first option is the default.
    options: dict[str, str] = {}
    # By option; an option without a condition keeps all rows
    conditions: dict[str, Q] = {}

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return list(self.options.items())[1:]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(self.conditions.get(self.chosen(), Q()))

    def chosen(self) -> str:
        value = self.value()
        return value if value in self.options else next(iter(self.options))

    def choices(self, changelist: ChangeList) -> Iterator[Any]:
        # The default option removes the parameter from the address.
        first = next(iter(self.options))
        for value, label in self.options.items():
            name = self.parameter_name or ""
            address = changelist.get_query_string({} if value == first else {name: value}, [name])
            yield {"selected": self.chosen() == value, "query_string": address, "display": label}
