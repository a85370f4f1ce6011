"""What a kind of memory declares, and the registry of kinds (decision 39)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, cached_property
from types import MappingProxyType

from django.core.exceptions import ImproperlyConfigured

from memoryhub.core.kinds.attributes import INDEXED, Shape, Show, shapes_of
from memoryhub.core.schemas import Payload

SHARED_COLUMNS = frozenset({"author", "updated"})
_NAME = re.compile(r"[a-z]{1,16}")
# Names of tools, models or filters of other entities
_TAKEN = frozenset(
    "memory decision commit session project org turn event iteration tag relation conflict review vector".split()
)
# Tool arguments and form fields that appear next to the attributes of a kind with unique names
_ARGUMENTS = frozenset(
    "id title name content description category type tags source links scope scope_id inherit include_deleted author "
    "idempotency_key if_exists base_version change_reason reason topic_key format session_id".split()
)


# The colour of a kind's badge: class ``tone-<value>`` in the style sheet.
class Tone(StrEnum):
    GREY = "grey"
    ACCENT = "accent"
    AMBER = "amber"
    BLUE = "blue"
    GREEN = "green"
    TEAL = "teal"
    VIOLET = "violet"


class Rendering(StrEnum):
    MARKDOWN = "markdown"
    PLAIN = "plain"
    CODE = "code"


# Names in the registry tools (``<kind>_add`` and others) of a kind with unique names.
@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    noun: str
    # The argument for the title.
    name: str = "name"
    # The argument for the text.
    text: str = "content"
    # Whether the tools list the argument ``source``; all accept it.
    lists_source: bool = False


# A section of the context pack for one kind.
@dataclass(frozen=True, slots=True, kw_only=True)
class PackSection:
    name: str
    title: str
    # Position among the sections: the last session is 10, facts are 40, conflicts 50.
    order: int
    # Share of the token budget, 0 to 1.
    share: float
    # Maximum number of characters of each memory's text.
    text_length: int


@dataclass(frozen=True, kw_only=True)
class Kind:
    # In events, tools and URLs.
    name: str
    label: str
    plural: str
    # Singular and plural for counts; default: label and plural in lower case.
    nouns: tuple[str, str] = ("", "")
    # The schema of the fields that only this kind has. Every field has a default.
    attributes: type[Payload]
    # The accepted types; if empty, any word.
    types: tuple[str, ...]
    default_type: str
    type_label: str = "Category"
    tone: Tone
    text_label: str
    text_help: str
    rendering: Rendering = Rendering.MARKDOWN
    # The button that opens the form for a new one.
    add_label: str
    # The text of an empty list.
    empty_text: str
    # Columns of the list after number, title and type: attributes, and any of ``SHARED_COLUMNS``.
    columns: tuple[str, ...]
    # Attributes that the list filters by: ``valid_until``, booleans and choices.
    filters: tuple[str, ...] = ()
    # How the registry, and then the admin's list, sorts entries: ``name``, or ``priority`` descending.
    order: str = "name"
    # Heading of the side panel; required if an attribute is shown there.
    panel_title: str = ""
    # None for a kind without unique names, which has no registry tools.
    entry: Entry | None
    # None lists the kind among the facts.
    pack: PackSection | None

    @cached_property
    def counted(self) -> tuple[str, str]:
        return self.nouns if all(self.nouns) else (self.label.lower(), self.plural.lower())

    @cached_property
    def shapes(self) -> Mapping[str, Shape]:
        return shapes_of(self.attributes)

    @cached_property
    def indexed(self) -> tuple[str, ...]:
        return tuple(name for name in INDEXED if name in self.shapes)


def _problems(kind: Kind) -> Iterator[str]:
    if not _NAME.fullmatch(kind.name) or kind.name in _TAKEN:
        yield f"the name must be 1 to 16 of the letters a to z, and none of {', '.join(sorted(_TAKEN))}"
    if kind.name in _kinds:
        yield "it is declared twice"
    for name in ("label", "plural", "default_type", "text_label", "text_help", "add_label", "empty_text"):
        if not getattr(kind, name):
            yield f"it declares no {name}"
    if kind.types and kind.default_type not in kind.types:
        yield f"default_type {kind.default_type!r} is not one of its types"
    for shape in kind.shapes.values():
        yield from (f"attribute {shape.name!r} {problem}" for problem in _attribute_problems(kind, shape))
    yield from _list_problems(kind)


def _attribute_problems(kind: Kind, shape: Shape) -> Iterator[str]:
    field = kind.attributes.model_fields[shape.name]
    if field.is_required():
        yield "has no default"
    if not field.description:
        yield "has no description for its tools and its form"
    if kind.entry and shape.name in _ARGUMENTS:
        yield "has the name of an argument of every tool"
    if INDEXED.get(shape.name, shape.type) != shape.type:
        yield f"has type {shape.type}, but the column of that name has type {INDEXED[shape.name]}"
    if shape.attribute.governs and shape.show is not Show.NAMES:
        yield "governs files, so it must be a list of strings"
    if shape.show is Show.BAR and not shape.highest:
        yield "is shown as a bar, so its schema must have a maximum"


def _list_problems(kind: Kind) -> Iterator[str]:
    for name in kind.columns:
        if name not in kind.shapes and name not in SHARED_COLUMNS:
            yield f"column {name!r} is neither an attribute nor one of {', '.join(sorted(SHARED_COLUMNS))}"
    for name in kind.filters:
        shape = kind.shapes.get(name)
        if shape is None or (name != "valid_until" and shape.type not in ("boolean", "choice")):
            yield f"filter {name!r} is not valid_until, a boolean attribute or a choice"
    if kind.order not in ("name", "priority") or (kind.order == "priority" and "priority" not in kind.shapes):
        yield f"order {kind.order!r} is neither name nor priority with an attribute of that name"
    in_panel = [shape.name for shape in kind.shapes.values() if shape.in_panel]
    if in_panel and not kind.panel_title:
        yield f"it declares no panel_title for {', '.join(in_panel)}"


_kinds: dict[str, Kind] = {}


def define_kind(kind: Kind) -> Kind:
    """Register a kind; raise ImproperlyConfigured if its declaration is incomplete or contradictory."""
    problem = next(_problems(kind), "")
    if not problem and all_kinds.cache_info().currsize:
        problem = "it is declared after memoryhub.core.kinds.builtin was imported"
    if problem:
        raise ImproperlyConfigured(f"kind {kind.name!r}: {problem}")
    _kinds[kind.name] = kind
    return kind


@cache
def all_kinds() -> Mapping[str, Kind]:
    # Enums and schemas are made from the kinds at import, so no kind can be defined after this call.
    return MappingProxyType(_kinds)
