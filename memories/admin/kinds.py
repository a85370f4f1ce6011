"""A list for each kind of memory, and a kind's attributes as columns and sections of a page."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.safestring import SafeString

from memories.admin import listing
from memories.admin.filters import COMMON_FILTERS, TypeFilter, attribute_filter, type_label
from memories.admin.lists import MemoryListAdmin
from memories.models import KIND_MODELS, Memory, MemoryKind
from memoryhub.core.admin import cells
from memoryhub.core.kinds import INDEXED, KINDS, AttributeShape, Kind, Show

Column = Callable[[Memory], SafeString | str]


def type_column(kind: Kind) -> Column:
    @admin.display(description=kind.type_label.lower(), ordering="type")
    def column(memory: Memory) -> SafeString:
        return cells.badge(memory.type, type_label(memory.type))

    column.__name__ = "type"
    return column


def attribute_column(shape: AttributeShape) -> Column:
    ordering = shape.name if shape.name in INDEXED else f"attributes__{shape.name}"

    @admin.display(description=shape.name.replace("_", " "), ordering=ordering)
    def column(memory: Memory) -> SafeString | str:
        return _cell(shape, memory)

    column.__name__ = shape.name
    return column


def _cell(shape: AttributeShape, memory: Memory) -> SafeString | str:
    value = getattr(KINDS[memory.kind].attributes.model_validate(memory.attributes), shape.name)
    if shape.name == "valid_until":
        return listing.validity(memory)
    if shape.show is Show.BAR:
        return listing.bar(value, shape.highest)
    if isinstance(value, bool):
        return "Yes" if value else "No"
    if isinstance(value, datetime):
        return cells.moment(value)
    return cells.NONE if value in (None, "", [], {}) else str(value)


def own_parts(memory: Memory) -> dict[str, Any]:
    """Return the attributes for the page of a memory.

    ``facts`` are tuples of label, value and maximum for the side panel with the heading ``title``; ``sections`` are the
    other attributes that are not empty, prose first.
    """
    kind = KINDS[memory.kind]
    values = kind.attributes.model_validate(memory.attributes).model_dump(mode="json")
    facts = []
    sections = []
    for shape in sorted(kind.shapes.values(), key=lambda shape: shape.show is not Show.PROSE):
        if shape.name == "check":  # the page has a card for it
            continue
        if shape.in_panel:
            has_maximum = shape.show is Show.BAR and shape.highest > 1
            facts.append((shape.heading, _cell(shape, memory), int(shape.highest) if has_maximum else 0))
            continue
        section = _section(shape, values[shape.name])
        if section["value"]:
            sections.append({"name": shape.name, "heading": shape.heading, **section})
    return {"title": kind.panel_title, "facts": facts, "sections": sections}


def _section(shape: AttributeShape, value: Any) -> dict[str, Any]:
    if shape.show is Show.ARGUMENTS:
        return {"show": shape.show, "value": _indented(value), "arguments": _arguments(value)}
    if shape.show is Show.BLOCKS:
        value = [entry if isinstance(entry, str) else _indented(entry) for entry in value]
    elif shape.show is Show.JSON:
        value = _indented(value)
    elif shape.show is Show.EXAMPLES and not any(value.values()):
        value = None
    return {"show": shape.show, "value": value}


def _indented(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) if value else ""


def _arguments(schema: dict[str, Any]) -> list[dict[str, Any]]:
    required = schema.get("required", [])
    arguments = []
    for name, about in schema.get("properties", {}).items():
        if isinstance(about, dict):
            arguments.append(
                {
                    "name": name,
                    "type": about.get("type", ""),
                    "required": name in required,
                    "about": about.get("description", ""),
                    "choices": about.get("enum", []),
                }
            )
    return arguments


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
    columns = {name: attribute_column(shape) for name, shape in kind.shapes.items()}
    members: dict[str, Any] = {
        "kind": MemoryKind(kind.name),
        "nouns": kind.counted,
        "list_title": kind.plural,
        "add_label": kind.add_label,
        "list_display": ("number", "about", type_column(kind), *(columns.get(name, name) for name in kind.columns)),
        "list_filter": (TypeFilter, *(attribute_filter(kind.shapes[name]) for name in kind.filters), *COMMON_FILTERS),
        "empty_title": f"No {kind.plural.lower()} yet",
        "empty_text": kind.empty_text,
    }
    if kind.order == "priority":
        members["ordering"] = ("-priority", "-updated_at")
    return type(f"{kind.name.capitalize()}Admin", (KindAdmin,), members)


for _kind in KINDS.values():
    admin.site.register(KIND_MODELS[_kind.name], _admin(_kind))
