"""A list for each kind of memory, with the columns and filters that the kind declares."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from memories.admin.filters import (
    AuthorFilter,
    ConflictFilter,
    DeletedFilter,
    ScopeFilter,
    TagFilter,
    TypeFilter,
    UpdatedFilter,
    attribute_filter,
)
from memories.admin.kind_parts import attribute_column, type_column
from memories.admin.lists import MemoryListAdmin
from memories.admin.rendering import UseFilter
from memories.admin.review_item import ReviewFilter
from memories.models import KIND_MODELS, MemoryKind
from memoryhub.core.kinds.builtin import KINDS
from memoryhub.core.kinds.definition import Kind
from sessions_app.admin.turns import SessionFilter

_COMMON = (
    TagFilter,
    ReviewFilter,
    DeletedFilter,
    ConflictFilter,
    UseFilter,
    UpdatedFilter,
    AuthorFilter,
    ScopeFilter,
    SessionFilter,
)


class KindAdmin(MemoryListAdmin):
    """The list and the form of one kind. The page of a memory belongs to ``MemoryAdmin``."""

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        return redirect("admin:memories_memory_change", self.find(request, object_id).pk)

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        return redirect("admin:memories_memory_history", self.find(request, object_id).pk)


def _admin(kind: Kind) -> type[KindAdmin]:
    members: dict[str, Any] = {
        "kind": MemoryKind(kind.name),
        "nouns": kind.counted,
        "add_label": kind.add_label,
        "list_display": ("number", "about", type_column(kind), *(_column(kind, name) for name in kind.columns)),
        "list_filter": (TypeFilter, *(attribute_filter(kind.shapes[name]) for name in kind.filters), *_COMMON),
        "empty_title": f"No {kind.plural.lower()} yet",
        "empty_text": kind.empty_text,
    }
    if kind.order == "priority":
        members["ordering"] = ("-priority", "-updated_at")
    return type(f"{kind.name.capitalize()}Admin", (KindAdmin,), members)


def _column(kind: Kind, name: str) -> Any:
    return attribute_column(kind.shapes[name]) if name in kind.shapes else name


for _kind in KINDS.values():
    admin.site.register(KIND_MODELS[_kind.name], _admin(_kind))
