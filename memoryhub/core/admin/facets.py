"""Lists with facets: filters with the number of rows of each value, and the active filters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any, ClassVar
from urllib.parse import urlencode

from django.contrib.admin import SimpleListFilter
from django.contrib.admin.utils import build_q_object_from_lookup_parameters
from django.contrib.admin.views.main import ORDER_VAR, SEARCH_VAR, ChangeList
from django.db.models import Case, Count, F, IntegerField, Q, QuerySet, Value, When
from django.http import HttpRequest

from memoryhub.core import clock

# Rows of a large store that are counted, the newest ones, so that pages of any store stay fast
COUNTED_AT_MOST = 25_000
# The facet whose values are all shown
MORE = "more"
_SHOWN, _ALL = 10, 500


@dataclass(frozen=True, slots=True)
class Choice:
    label: str
    url: str
    is_chosen: bool
    count: str = ""


@dataclass(frozen=True, slots=True)
class FacetView:
    title: str
    multiple: bool
    choices: Sequence[Choice]
    # Address that shows all values, if there are others
    more: str = ""


@dataclass(frozen=True, slots=True)
class Chip:
    label: str
    # Address without this filter
    url: str


class HubChangeList(ChangeList):
    filter_specs: list[Any]

    def __init__(self, request: HttpRequest, *arguments: Any, **options: Any) -> None:
        self._request = request
        super().__init__(request, *arguments, **options)

    def get_filters(self, request: HttpRequest) -> Any:
        self.filter_params.pop(MORE, None)
        specs, _, lookups, *flags = super().get_filters(request)
        self._other_lookups: dict[str, Any] = lookups
        # False: Django's own sidebar is not shown
        return specs, False, lookups, *flags

    @property
    def counted(self) -> str:
        more = "+" if self.result_count == COUNTED_AT_MOST else ""
        one, many = getattr(self.model_admin, "nouns", None) or (self.opts.verbose_name, self.opts.verbose_name_plural)
        noun = one if self.result_count == 1 else many
        return f"{self.result_count:,}{more} {noun}"

    @property
    def _facets(self) -> list[Facet]:
        return [spec for spec in self.filter_specs if isinstance(spec, Facet)]

    @cached_property
    def facets(self) -> list[FacetView]:
        """The facets with something to choose, each counted under the filters of the others."""
        counts = self._counts()
        choosable = [facet for facet in self._facets if facet.active() or facet.distinguishes(counts[facet.name])]
        return [self._view(facet, counts[facet.name]) for facet in choosable]

    @cached_property
    def chips(self) -> list[Chip]:
        """The active filters."""
        chips = []
        for facet in self._facets:
            chosen = facet.active()
            labels = facet.labels(chosen)
            for value in chosen:
                remaining = [other for other in chosen if other != value]
                chips.append(Chip(f"{facet.title}: {labels.get(value, value)}", self._address(facet.name, remaining)))
        for name in self._other_lookups:
            label = name.removesuffix("__exact").replace("_", " ")
            chips.append(Chip(f"{label}: {self.params.get(name, '')}", self._address(name, ())))
        return chips

    @property
    def clear_url(self) -> str:
        parameters = {name: self.filter_params[name] for name in (SEARCH_VAR, ORDER_VAR) if name in self.filter_params}
        return f"?{urlencode(parameters, doseq=True)}"

    def kept_parameters(self) -> Iterator[tuple[str, str]]:
        """Yield what a new search keeps of the address: the filters."""
        for name, values in self.filter_params.items():
            if name not in (SEARCH_VAR, ORDER_VAR):
                yield from ((name, value) for value in values)

    def _address(self, name: str, values: Collection[str]) -> str:
        return f"?{urlencode({**self.filter_params, name: list(values)}, doseq=True)}"

    def _view(self, facet: Facet, counts: Mapping[str, int]) -> FacetView:
        values = facet.order(counts)
        limit = _ALL if self.params.get(MORE) == facet.name else _SHOWN
        chosen = facet.active() or [facet.default]
        visible = [*filter(None, chosen), *values[:limit]]
        if self.query and facet.values:
            # A search finds the best of the chosen value, so the others are not counted
            visible += facet.always()
        labels = facet.labels(dict.fromkeys(visible))
        choices = [self._choice(facet, value, label, counts.get(value)) for value, label in labels.items()]
        has_more = len(values) > limit and limit == _SHOWN
        more = self._address(MORE, [facet.name]) if has_more else ""
        return FacetView(str(facet.title), facet.multiple, choices, more)

    def _choice(self, facet: Facet, value: str, label: str, count: int | None) -> Choice:
        is_chosen = value in (facet.active() or [facet.default])
        values = []
        if facet.multiple or is_chosen:
            values = [other for other in facet.active() if other != value]
        if not is_chosen and value != facet.default:
            values.append(value)
        text = ""
        if count is not None:
            text = f"{count:,}"
            if count and self._floor:
                text += "+"
        return Choice(label, self._address(facet.name, values), is_chosen, text)

    def _counts(self) -> dict[str, dict[str, int]]:
        together = [facet for facet in self._facets if facet.has_key]
        counts = count_together(together, self._rows(together)) if together else {}
        for facet in self._facets:
            name = facet.name
            if name not in counts:
                most = _ALL if self.params.get(MORE) == name else _SHOWN + 1
                rows = self._rows([facet]) if facet.is_any else self._rows([])
                counts[name] = facet.count_alone(rows, most)
        return counts

    # The list's rows without the filters of these facets; of a large store, the newest
    def _rows(self, excluded: Sequence[Facet]) -> QuerySet[Any]:
        rows: QuerySet[Any] = self.root_queryset
        for spec in self.filter_specs:
            if spec not in excluded:
                rows = spec.queryset(self._request, rows)
        rows = rows.filter(build_q_object_from_lookup_parameters(self._other_lookups))
        if self._floor:
            rows = rows.filter(pk__gt=self._floor)
        matches, _ = self.model_admin.get_search_results(self._request, rows, self.query)
        return matches.order_by()

    @cached_property
    def _floor(self) -> int:
        rows = self.root_queryset.order_by().values_list("pk", flat=True)
        # Counted first, without an order: an index is enough for that, and nothing is sorted
        if self.query or rows[: COUNTED_AT_MOST + 1].count() <= COUNTED_AT_MOST:
            return 0
        return next(iter(rows.order_by("-pk")[COUNTED_AT_MOST : COUNTED_AT_MOST + 1]), 0)


def count_together(facets: Sequence[Facet], rows: QuerySet[Any]) -> dict[str, dict[str, int]]:
    """Return the counts of each facet's values under the filters of the other facets, in one query."""
    keys = {f"facet_{place}": facet.key() for place, facet in enumerate(facets)}
    counters: list[Counter[str]] = [Counter() for _ in facets]
    for *group, total in rows.annotate(**keys).values_list(*keys).annotate(total=Count("pk")):
        refusing = [place for place, key in enumerate(group) if not facets[place].accepts(key)]
        if len(refusing) > 1:
            continue
        # What one facet alone refuses is counted in that facet
        for place in refusing or range(len(group)):
            for value in facets[place].values_of(group[place]):
                counters[place][value] += total
    return {facet.name: dict(counter) for facet, counter in zip(facets, counters, strict=True)}


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
        labels = {value: value for value in values}
        offered = {str(value): str(label) for value, label in self.offered if str(value) in labels}
        return offered | {value: label for value, label in labels.items() if value not in offered}

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if not self.values:
            return queryset
        return queryset.filter(**{f"{self.field}__in": self.values})


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
        key: Any = Value(0)
        for bit, condition in enumerate(self.conditions_now().values()):
            when = When(condition, then=Value(1 << bit))
            key += Case(when, default=Value(0), output_field=IntegerField())
        return key

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
        if self.default:
            totals.add(counts.get(self.default, 0))
        return len(totals) > 1

    def active(self) -> list[str]:
        chosen = self.chosen()
        return [chosen] if chosen != self.default else []

    def labels(self, values: Iterable[str]) -> Mapping[str, str]:
        present = {*values, self.default}
        return {value: label for value, label in self.options.items() if value in present}

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(self.conditions_now().get(self.chosen(), Q()))


class SinceFilter(ConditionFilter):
    parameter_name = "since"
    field = ""
    options = _SPANS

    def conditions_now(self) -> Mapping[str, Q]:
        return {days: Q(**{f"{self.field}__gte": self._now - timedelta(days=int(days))}) for days in _SPANS}

    def __init__(self, request: HttpRequest, params: dict[str, Any], model: Any, model_admin: Any) -> None:
        self._now = clock.now()
        super().__init__(request, params, model, model_admin)


def since_filter(title: str, field: str) -> type[SinceFilter]:
    """Return a facet of a time."""
    return type("SinceFilter", (SinceFilter,), {"title": title, "field": field})


class DefaultFilter(ConditionFilter):
    # The first option is the default.
    @property
    def default(self) -> str:
        return next(iter(self.options))
