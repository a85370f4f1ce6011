from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.contrib.admin import SimpleListFilter
from django.db.models import Count, Q, QuerySet
from django.http import HttpRequest

from memories.models import Conflict, Memory, MemoryKind, MemoryScope, MemoryTag
from memories.scopes import own_scope
from memoryhub.core import clock
from memoryhub.core.admin import DefaultFilter, SinceFilter, ValueFilter, value_filter
from memoryhub.core.kinds.attributes import Shape
from memoryhub.core.kinds.builtin import DEFAULT_KIND, KINDS

_OFFERED = 20


KindFilter = value_filter("kind", MemoryKind.choices)


class TypeFilter(ValueFilter):
    title = "type"
    parameter_name = "type"
    field = "type"

    def __init__(self, request: HttpRequest, params: dict[str, Any], model: Any, model_admin: Any) -> None:
        if model_admin.kind:
            self.title = KINDS[model_admin.kind].type_label.lower()
        super().__init__(request, params, model, model_admin)

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        kind = model_admin.kind or _kind_in(request)
        return [(name, type_label(name)) for name in KINDS[kind].types or used_types(kind)]


class TagFilter(SimpleListFilter):
    title = "tag"
    parameter_name = "tag"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        tags = most_used_tags(_OFFERED)
        used = request.GET.get("tag")
        return [(tag, tag) for tag in ([used] if used and used not in tags else []) + tags]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        tag = self.value()
        return queryset.filter(id__in=MemoryTag.objects.filter(tag=tag).values("memory_id")) if tag else queryset


class ScopeFilter(ValueFilter):
    title = "scope"
    parameter_name = "scope"
    field = "scope"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        shared = (MemoryScope.PROJECT, MemoryScope.SESSION) if own_scope() is MemoryScope.PROJECT else ()
        return [(scope.value, str(scope.label)) for scope in shared]


class UpdatedFilter(SinceFilter):
    title = "last change"
    field = "updated_at"


class DeletedFilter(DefaultFilter):
    title = "state"
    parameter_name = "state"
    options = {"kept": "Not deleted", "deleted": "Deleted", "all": "All"}
    conditions = {"kept": Q(deleted_at__isnull=True), "deleted": Q(deleted_at__isnull=False)}


class ConflictFilter(DefaultFilter):
    title = "conflicts"
    parameter_name = "conflicts"
    options = {"any": "All", "open": "Unresolved"}

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if self.chosen() == "any":
            return queryset
        return queryset.filter(id__in=Conflict.objects.filter(resolved_at__isnull=True).values("memory_id"))


class ValidityFilter(DefaultFilter):
    title = "validity"
    parameter_name = "validity"
    options = {"any": "All", "valid": "Valid", "expired": "Expired"}

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        expired = Q(valid_until__lte=clock.now())
        if self.chosen() == "any":
            return queryset
        valid = Q(valid_until__isnull=True) | Q(valid_until__gt=clock.now())
        return queryset.filter(expired if self.chosen() == "expired" else valid)


class AttributeFilter(SimpleListFilter):
    shape: Shape

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        if self.shape.type == "boolean":
            return [("yes", "Yes"), ("no", "No")]
        return [(choice, type_label(choice)) for choice in self.shape.choices]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if self.value() not in {choice for choice, _ in self.lookup_choices}:
            return queryset
        wanted = self.value() == "yes" if self.shape.type == "boolean" else self.value()
        path = f"attributes__{self.shape.name}"
        matching = Q(**{path: wanted})
        # An attribute that was never set is not stored; its value is the default.
        is_unset = Q(**{f"{path}__isnull": True})
        return queryset.filter(matching | is_unset if wanted == self.shape.default else matching)


def attribute_filter(shape: Shape) -> type[SimpleListFilter]:
    if shape.name == "valid_until":
        return ValidityFilter
    members = {"title": shape.name.replace("_", " "), "parameter_name": shape.name, "shape": shape}
    return type(f"{shape.name.title()}Filter", (AttributeFilter,), members)


def type_label(name: str) -> str:
    return name.upper() if name in ("mcp", "cli", "api") else name.replace("_", " ").capitalize()


def used_types(kind: str) -> Iterable[str]:
    """Return the 20 most used types of a kind."""
    used = Memory.objects.live().filter(kind=kind).values_list("type").annotate(count=Count("id"))
    return [name for name, _ in used.order_by("-count", "type")[:_OFFERED]]


def most_used_tags(limit: int) -> list[str]:
    counted = MemoryTag.objects.values("tag").annotate(memories=Count("memory_id")).order_by("-memories", "tag")
    return [row["tag"] for row in counted[:limit]]


def _kind_in(request: HttpRequest) -> str:
    chosen = request.GET.get("kind", "")
    return chosen if chosen in KINDS else DEFAULT_KIND
