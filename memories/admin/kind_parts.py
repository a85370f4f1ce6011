"""A kind's attributes as columns of lists and sections of a memory's page."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

from django.utils.safestring import SafeString

from memories.admin import listing
from memories.admin.filters import type_label
from memories.models import Memory
from memoryhub.core.admin import cells
from memoryhub.core.kinds.attributes import INDEXED, Shape, Show
from memoryhub.core.kinds.builtin import KINDS
from memoryhub.core.kinds.definition import Kind

Column = Callable[[Memory], SafeString | str]


def type_column(kind: Kind) -> Column:
    def type_of(memory: Memory) -> SafeString:
        return cells.badge(memory.type, type_label(memory.type))

    return _named(type_of, "type", kind.type_label.lower(), "type")


def attribute_column(shape: Shape) -> Column:
    def value_of(memory: Memory) -> SafeString | str:
        return _cell(shape, memory)

    ordering = shape.name if shape.name in INDEXED else f"attributes__{shape.name}"
    return _named(value_of, shape.name, shape.name.replace("_", " "), ordering)


def _named(column: Any, name: str, description: str, ordering: str) -> Column:
    column.__name__, column.short_description, column.admin_order_field = name, description, ordering
    return column  # type: ignore[no-any-return]


def _cell(shape: Shape, memory: Memory) -> SafeString | str:
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
    facts = [shape for shape in kind.shapes.values() if shape.in_panel]
    rest = sorted((shape for shape in kind.shapes.values() if not shape.in_panel), key=_is_no_text)
    sections = [{"name": shape.name, "heading": shape.heading, **_section(shape, values[shape.name])} for shape in rest]
    return {
        "title": kind.panel_title,
        "facts": [(shape.heading, _cell(shape, memory), _out_of(shape)) for shape in facts],
        "sections": [section for section in sections if section["value"]],
    }


def _is_no_text(shape: Shape) -> bool:
    return shape.show is not Show.PROSE


def _out_of(shape: Shape) -> int:
    return int(shape.highest) if shape.show is Show.BAR and shape.highest > 1 else 0


def _section(shape: Shape, value: Any) -> dict[str, Any]:
    if shape.show is Show.ARGUMENTS:
        return {"show": shape.show, "value": _indented(value), "arguments": _arguments(value)}
    if shape.show is Show.BLOCKS:
        value = [entry if isinstance(entry, str) else _indented(entry) for entry in value]
    if shape.show is Show.EXAMPLES and not any(value.values()):
        value = None
    return {"show": shape.show, "value": _indented(value) if shape.show is Show.JSON else value}


def _indented(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) if value else ""


def _arguments(schema: dict[str, Any]) -> list[dict[str, Any]]:
    required = schema.get("required", [])
    return [
        {
            "name": name,
            "type": about.get("type", ""),
            "required": name in required,
            "about": about.get("description", ""),
            "choices": about.get("enum", []),
        }
        for name, about in schema.get("properties", {}).items()
        if isinstance(about, dict)
    ]
