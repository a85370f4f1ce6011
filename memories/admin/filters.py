from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

from django.db.models import Count, F, Q, QuerySet
from django.http import HttpRequest

from memories.models import Conflict, MemoryKind, MemoryScope, MemoryTag, MemoryUse, ReviewState
from memories.validity.marks import MarkKind
from memories.validity.selectors import ids_with_mark
from memoryhub.core import clock
from memoryhub.core.admin import ConditionFilter, DefaultFilter, Facet, ValueFilter, since_filter, value_filter
from memoryhub.core.kinds import KINDS, AttributeShape
from memoryhub.core.log.read import as_parameter
from memoryhub.core.stores.dialect import IDS
from sessions_app.admin import SessionFilter

KindFilter = value_filter("kind", MemoryKind.choices)


class TypeFilter(ValueFilter):
    title = "type"
    parameter_name = "type"
    field = "type"

    def __init__(self, request: HttpRequest, params: dict[str, Any], model: Any, model_admin: Any) -> None:
        if model_admin.kind:
            self.title = KINDS[model_admin.kind].type_label.lower()
        super().__init__(request, params, model, model_admin)

    def labels(self, values: Iterable[str]) -> Mapping[str, str]:
        return {value: type_label(value) for value in values}


class TagFilter(Facet):
    title = "tag"
    parameter_name = "tag"
    # A memory must have all of the chosen tags
    multiple = True
    is_any = False
    has_key = False

    def count_alone(self, rows: QuerySet[Any], most: int) -> dict[str, int]:
        # "+ 0": SQLite reads the tags in their order, instead of looking up those of each memory
        owned = MemoryTag.objects.annotate(owner=F("memory_id") + 0).filter(owner__in=rows.values("pk"))
        counted = owned.values_list("tag")
        return dict(counted.annotate(total=Count("memory_id")).order_by("-total", "tag")[:most])

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        for tag in self.values:
            queryset = queryset.filter(id__in=MemoryTag.objects.filter(tag=tag).values("memory_id"))
        return queryset


ScopeFilter = value_filter("scope", MemoryScope.choices)
AuthorFilter = value_filter("author")


class DeletedFilter(DefaultFilter):
    title = "state"
    parameter_name = "state"
    options = {"kept": "Not deleted", "deleted": "Deleted", "all": "All"}
    conditions = {"kept": Q(deleted_at__isnull=True), "deleted": Q(deleted_at__isnull=False)}


class MemoryReviewFilter(DefaultFilter):
    title = "review"
    parameter_name = "review"
    options = {
        "kept": "Not rejected",
        "accepted": "Accepted",
        "proposed": "Proposed",
        "rejected": "Rejected",
        "all": "All",
    }
    conditions = {"kept": ~Q(review=ReviewState.REJECTED), **{str(state): Q(review=state) for state in ReviewState}}


class ConflictFilter(DefaultFilter):
    title = "conflicts"
    parameter_name = "conflicts"
    options = {"any": "All", "open": "Unresolved"}

    def conditions_now(self) -> dict[str, Q]:
        return {"open": Q(id__in=Conflict.objects.filter(resolved_at__isnull=True).values("memory_id"))}


class UseFilter(DefaultFilter):
    title = "use"
    parameter_name = "use"
    options = {"any": "All", "ignored": "Ignored", "used": "Used", "never": "Never in a pack"}

    def conditions_now(self) -> dict[str, Q]:
        return {
            "ignored": Q(id__in=MemoryUse.objects.ignored().values("memory_id")),
            "used": Q(id__in=MemoryUse.objects.used().values("memory_id")),
            "never": ~Q(id__in=MemoryUse.objects.filter(given__gt=0).values("memory_id")),
        }


MARK_LABELS: dict[str, str] = {
    MarkKind.CHANGED: "Code changed",
    MarkKind.GONE: "Code gone",
    MarkKind.BRANCH: "Not merged",
    MarkKind.AMENDED: "Amended",
    MarkKind.CONTRADICTED: "Contradicted",
    MarkKind.FAILED: "Check failed",
    MarkKind.ORIGIN: "Not accepted",
}


class MarkFilter(Facet):
    title = "mark"
    parameter_name = "mark"
    # Entries are compared with the working tree only if a mark is chosen
    has_key = False

    def distinguishes(self, counts: Mapping[str, int]) -> bool:
        return True

    def labels(self, values: Iterable[str]) -> Mapping[str, str]:
        return {"": "All", **MARK_LABELS}

    @cached_property
    def _ids(self) -> list[int]:
        return ids_with_mark(self.values[-1])

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(id__in=as_parameter(IDS, self._ids)) if self.values else queryset


# The lists of all memories and of each kind have these
COMMON_FILTERS = (
    TagFilter,
    MemoryReviewFilter,
    DeletedFilter,
    ConflictFilter,
    MarkFilter,
    UseFilter,
    since_filter("last change", "updated_at"),
    AuthorFilter,
    ScopeFilter,
    SessionFilter,
)


class ValidityFilter(DefaultFilter):
    title = "validity"
    parameter_name = "validity"
    options = {"any": "All", "valid": "Valid", "expired": "Expired"}

    def __init__(self, request: HttpRequest, params: dict[str, Any], model: Any, model_admin: Any) -> None:
        self._now = clock.now()
        super().__init__(request, params, model, model_admin)

    def conditions_now(self) -> dict[str, Q]:
        valid = Q(valid_until__isnull=True) | Q(valid_until__gt=self._now)
        return {"valid": valid, "expired": Q(valid_until__lte=self._now)}


class AttributeFilter(ConditionFilter):
    shape: AttributeShape

    def conditions_now(self) -> dict[str, Q]:
        return {choice: self._having(choice) for choice in self.options}

    def _having(self, choice: str) -> Q:
        value = choice == "yes" if self.shape.type == "boolean" else choice
        path = f"attributes__{self.shape.name}"
        matching = Q(**{path: value})
        # An attribute that was never set is not stored; its value is the default.
        return matching | Q(**{f"{path}__isnull": True}) if value == self.shape.default else matching


def attribute_filter(shape: AttributeShape) -> type[ConditionFilter]:
    if shape.name == "valid_until":
        return ValidityFilter
    names = ("yes", "no") if shape.type == "boolean" else shape.choices
    options = {name: type_label(name) for name in names}
    title = shape.name.replace("_", " ")
    members = {"title": title, "parameter_name": shape.name, "shape": shape, "options": options}
    return type(f"{shape.name.title()}Filter", (AttributeFilter,), members)


def type_label(name: str) -> str:
    # It says no more than “memory” (decision 101)
    if name == "note":
        return "Plain"
    return name.upper() if name in ("mcp", "cli", "api") else name.replace("_", " ").capitalize()
