"""What is incomplete or contradictory in the declaration of a kind."""

from __future__ import annotations

import re
from collections.abc import Iterator

from memoryhub.core.kinds import INDEXED, KINDS, AttributeShape, Kind, Show

_SHARED_COLUMNS = ("author", "updated")
_TEXTS = ("label", "plural", "default_type", "text_label", "text_help", "add_label", "empty_text")
# Names of tools, models or filters of other entities
_RESERVED = frozenset(
    "memory decision commit session project org turn event iteration tag relation conflict review vector".split()
)
# Tool arguments and form fields that appear next to the attributes of a kind with unique titles
_ARGUMENTS = frozenset(
    "id title name content description category type tags source links scope scope_id inherit include_deleted author "
    "idempotency_key if_exists base_version change_reason reason topic_key format session_id".split()
)


def problems(kind: Kind) -> Iterator[str]:
    if not re.fullmatch("[a-z]{1,16}", kind.name) or kind.name in _RESERVED:
        yield f"the name must be 1 to 16 of the letters a to z, and none of {', '.join(sorted(_RESERVED))}"
    if KINDS.get(kind.name, kind) is not kind:
        yield "it is declared twice"
    for name in _TEXTS:
        if not getattr(kind, name):
            yield f"it declares no {name}"
    if kind.types and kind.default_type not in kind.types:
        yield f"default_type {kind.default_type!r} is not one of its types"
    for shape in kind.shapes.values():
        yield from (f"attribute {shape.name!r} {problem}" for problem in _attribute_problems(kind, shape))
    yield from _list_problems(kind)


def _attribute_problems(kind: Kind, shape: AttributeShape) -> Iterator[str]:
    field = kind.attributes.model_fields[shape.name]
    if field.is_required():
        yield "has no default"
    if not field.description:
        yield "has no description for its tools and its form"
    if kind.tools and shape.name in _ARGUMENTS:
        yield "has the name of an argument of every tool"
    if INDEXED.get(shape.name, shape.type) != shape.type:
        yield f"has type {shape.type}, but the column of that name has type {INDEXED[shape.name]}"
    if shape.attribute.lists_files and shape.show is not Show.NAMES:
        yield "lists files, so it must be a list of strings"
    if shape.show is Show.BAR and not shape.highest:
        yield "is shown as a bar, so its schema must have a maximum"


def _list_problems(kind: Kind) -> Iterator[str]:
    for name in kind.columns:
        if name not in kind.shapes and name not in _SHARED_COLUMNS:
            yield f"column {name!r} is neither an attribute nor one of {', '.join(_SHARED_COLUMNS)}"
    for name in kind.filters:
        shape = kind.shapes.get(name)
        if shape is None or (name != "valid_until" and shape.type not in ("boolean", "choice")):
            yield f"filter {name!r} is not valid_until, a boolean attribute or a choice"
    if kind.order not in ("name", "priority") or (kind.order == "priority" and "priority" not in kind.shapes):
        yield f"order {kind.order!r} is neither name nor priority with an attribute of that name"
    in_panel = [shape.name for shape in kind.shapes.values() if shape.in_panel]
    if in_panel and not kind.panel_title:
        yield f"it declares no panel_title for {', '.join(in_panel)}"
