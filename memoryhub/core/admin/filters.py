"""Facets: filters of a list, with the number of rows of each value. ``facets.py`` counts them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import cached_property, reduce
from operator import add
from typing import Any, ClassVar

from django.contrib.admin import SimpleListFilter
from django.db.models import Case, Count, F, IntegerField, Q, QuerySet, Value, When
from django.http import HttpRequest

from memoryhub.core import clock

_SPANS = {"1": "Past day", "7": "Past 7 days", "30": "Past 30 days", "365": "Past year"}


class Facet(SimpleListFilter):
    """A filter by one parameter.

    Facets are counted together, in one query grouped by ``key``. A facet without a key is counted in a query of its
    own, by ``count_alone``.
    """

    # Whether several values can be chosen at once, and whether rows have any of them instead of all
    multiple = False
    is_any = True
    has_key = True

    def __init__(self, request: HttpRequest, params: dict[str, Any], model: Any, model_admin: Any) -> None:
        self.values = list(dict.fromkeys(value for value in params.get(self.name, ()) if value))
        super().__init__(request, params, model, model_admin)

    @property
    def name(self) -> str:
        return self.parameter_name or ""

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return []

    def has_output(self) -> bool:
        return True

    def key(self) -> Any:
        """Return the expression to group rows by, if the facet has one."""
        raise NotImplementedError

    def values_of(self, key: Any) -> Collection[str]:
        """Return the values that rows with this key have."""
        raise NotImplementedError

    def accepts(self, key: Any) -> bool:
        return not self.values or not set(self.values).isdisjoint(self.values_of(key))

    def count_alone(self, rows: QuerySet[Any], most: int) -> dict[str, int]:
        """Return the ``most`` frequent values; ``rows`` are all rows of the list, without this facet's filter."""
        return {}

    def distinguishes(self, counts: Mapping[str, int]) -> bool:
        """Return whether a choice would leave out rows."""
        return len(counts) > 1

    def order(self, counts: Mapping[str, int]) -> list[str]:
        """Return the values in the order in which the first ones are shown."""
        return sorted(counts, key=lambda value: (-counts[value], value))

    def labels(self, values: Iterable[str]) -> Mapping[str, str]:
        """Return the values to show, in order, with their labels."""
        return {value: value for value in values}

    # The value that the list has without this parameter
    @property
    def default(self) -> str:
        return ""

    def active(self) -> list[str]:
        """Return the chosen values, without the default."""
        return self.values if self.multiple else self.values[-1:]

    def always(self) -> Iterable[str]:
        """Return values that are shown even if no row has them."""
        return ()


class ValueFilter(Facet):
    """Filter by a field.

    ``offered`` has the values and labels, in order; without it, all values, most frequent first. A field with many
    values is ``wide``; a field with a value for every few rows is not ``listed``, and shown only while it is chosen.
    """

    field = ""
    offered: Sequence[tuple[Any, Any]] = ()
    multiple = True
    wide = False
    listed = True

    @property
    def has_key(self) -> bool:  # type: ignore[override]
        return self.listed and not self.wide

    def key(self) -> Any:
        return F(self.field)

    def always(self) -> Iterable[str]:
        return (str(value) for value, _ in self.offered)

    def values_of(self, key: Any) -> Collection[str]:
        return (str(key),) if key not in (None, "") else ()

    def count_alone(self, rows: QuerySet[Any], most: int) -> dict[str, int]:
        if not self.listed:
            return {}
        counted = rows.exclude(**{self.field: ""}).order_by().values_list(self.field).annotate(total=Count("pk"))
        return dict(counted.order_by("-total", self.field)[:most])

    def labels(self, values: Iterable[str]) -> Mapping[str, str]:
        names = {str(value): str(label) for value, label in self.offered}
        found = list(values)
        return {value: names.get(value, value) for value in [*(name for name in names if name in found), *found]}

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(**{f"{self.field}__in": self.values}) if self.values else queryset


def value_filter(
    name: str, offered: Sequence[tuple[Any, Any]] = (), *, field: str = "", **members: Any
) -> type[ValueFilter]:
    """Return a facet of a field.

    Args:
        name: the facet's title and query parameter.
        offered: values and labels.
        field: default: ``name``.
        members: other attributes of ``ValueFilter``.
    """
    members |= {"title": name, "parameter_name": name, "field": field or name, "offered": offered}
    return type(f"{name.title()}Filter", (ValueFilter,), members)


class ConditionFilter(Facet):
    """Filter by one of several conditions, which may overlap; an option without a condition keeps all rows."""

    options: ClassVar[dict[str, str]] = {}
    conditions: ClassVar[dict[str, Q]] = {}

    def conditions_now(self) -> Mapping[str, Q]:
        return self.conditions

    # A bit for each condition
    def key(self) -> Any:
        whens = [When(condition, then=Value(1 << bit)) for bit, condition in enumerate(self.conditions_now().values())]
        return reduce(add, (Case(when, default=Value(0), output_field=IntegerField()) for when in whens), Value(0))

    def values_of(self, key: Any) -> Collection[str]:
        return [name for name in self.options if name not in self._bits or key & self._bits[name]]

    @cached_property
    def _bits(self) -> dict[str, int]:
        return {name: 1 << bit for bit, name in enumerate(self.conditions_now())}

    def accepts(self, key: Any) -> bool:
        return not self.chosen() or self.chosen() in self.values_of(key)

    def chosen(self) -> str:
        value = self.value() or ""
        return value if value in self.options else self.default

    def distinguishes(self, counts: Mapping[str, int]) -> bool:
        totals = {counts[name] for name in self.options if counts.get(name)}
        return len(totals | ({counts.get(self.default, 0)} if self.default else set())) > 1

    def active(self) -> list[str]:
        return [self.chosen()] if self.chosen() != self.default else []

    def labels(self, values: Iterable[str]) -> Mapping[str, str]:
        found = {*values, self.default}
        return {value: label for value, label in self.options.items() if value in found}

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(self.conditions_now().get(self.chosen(), Q()))


class SinceFilter(ConditionFilter):
    title = "time"
    parameter_name = "since"
    field = "created_at"
    options = _SPANS

    def conditions_now(self) -> Mapping[str, Q]:
        return {days: Q(**{f"{self.field}__gte": self._now - timedelta(days=int(days))}) for days in _SPANS}

    def __init__(self, request: HttpRequest, params: dict[str, Any], model: Any, model_admin: Any) -> None:
        self._now = clock.now()
        super().__init__(request, params, model, model_admin)


class DefaultFilter(ConditionFilter):
    # The first option is the default.
    @property
    def default(self) -> str:
        return next(iter(self.options))
