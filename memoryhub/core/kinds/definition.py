"""What a kind of memory declares, and the registry of kinds. The kinds themselves are in ``core/kinds/builtin.py``."""

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

SHARED_COLUMNS = frozenset({"revision", "author", "updated", "seen"})
_NAME = re.compile(r"[a-z]{1,16}")
# Other things that have tools, models or filters under their name
_TAKEN = frozenset(
    "memory decision commit session project org turn event iteration tag relation conflict review vector".split()
)
# Arguments of tools and fields of forms beside which the attributes of a named kind are listed
_ARGUMENTS = frozenset(
    "id title name content description category type tags source links scope scope_id inherit include_deleted author "
    "idempotency_key if_exists base_version change_reason reason topic_key format session_id".split()
)


class Tone(StrEnum):
    """The colour of a kind's badge; the style sheet has a class ``tone-<value>`` for each."""

    GREY = "grey"
    ACCENT = "accent"
    AMBER = "amber"
    BLUE = "blue"
    GREEN = "green"
    TEAL = "teal"
    VIOLET = "violet"


class Rendering(StrEnum):
    """How pages render the text of a memory."""

    MARKDOWN = "markdown"
    PLAIN = "plain"
    CODE = "code"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """The names that the registry's tools, ``<kind>_add`` and the like, have for the parts of a named kind."""

    noun: str
    name: str = "name"
    """The argument that is the title."""
    text: str = "content"
    """The argument that is the text."""
    lists_source: bool = False
    """Whether the tools list the argument ``source``; all accept it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackSection:
    """A section of the context pack for one kind."""

    name: str
    title: str
    order: int
    """Place among the sections: the last session is 10, facts are 40, conflicts 50."""
    share: float
    """Share of the token budget, 0 to 1."""
    text_length: int
    """Characters of each memory's text."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of memory. Everything that depends on the kind is derived from these fields."""

    name: str
    """In events, tools and addresses."""
    label: str
    plural: str
    nouns: tuple[str, str] = ("", "")
    """One and many, as counts name them; default: label and plural in lower case."""
    attributes: type[Payload]
    """The schema of what only this kind has. Every field has a default."""
    types: tuple[str, ...]
    """The types that it takes; empty if any word is one."""
    default_type: str
    type_label: str = "Category"
    tone: Tone
    text_label: str
    text_help: str
    rendering: Rendering = Rendering.MARKDOWN
    add_label: str
    """The button that opens the form of a new one."""
    empty_text: str
    """What an empty list says."""
    columns: tuple[str, ...]
    """Columns of the list after number, title and type: attributes, and any of ``SHARED_COLUMNS``."""
    filters: tuple[str, ...] = ()
    """Attributes that the list filters by: ``valid_until``, booleans, and fields of a few choices."""
    order: str = "name"
    """How the registry lists entries: ``name``, or ``priority``, the highest first, as the admin's list then too."""
    panel_title: str = ""
    """Heading of the side panel; needed if an attribute is shown there."""
    entry: Entry | None
    """Tools of the registry, for a kind whose titles are unique names; None for a kind without unique names."""
    pack: PackSection | None
    """Its own section of the context pack; None lists it among the facts."""

    @cached_property
    def counted(self) -> tuple[str, str]:
        """What one and what many are called."""
        return self.nouns if all(self.nouns) else (self.label.lower(), self.plural.lower())

    @cached_property
    def shapes(self) -> Mapping[str, Shape]:
        """The attributes, in the order of the schema."""
        return shapes_of(self.attributes)

    @cached_property
    def indexed(self) -> tuple[str, ...]:
        """The attributes that have a column of the table."""
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
        yield "has no description, which its tools and its form show"
    if kind.entry and shape.name in _ARGUMENTS:
        yield "has the name of an argument of every tool"
    if INDEXED.get(shape.name, shape.type) != shape.type:
        yield f"is of type {shape.type}; the column of that name holds {INDEXED[shape.name]}"
    if shape.attribute.governs and shape.show is not Show.NAMES:
        yield "governs files, so it must be a list of strings"
    if shape.show is Show.BAR and not shape.highest:
        yield "is shown as a bar, so its schema must have a maximum"


def _list_problems(kind: Kind) -> Iterator[str]:
    for name in kind.columns:
        if name not in kind.shapes and name not in SHARED_COLUMNS:
            yield f"column {name!r} is no attribute and none of {', '.join(sorted(SHARED_COLUMNS))}"
    for name in kind.filters:
        shape = kind.shapes.get(name)
        if shape is None or (name != "valid_until" and shape.type not in ("boolean", "choice")):
            yield f"filter {name!r} is no attribute that is valid_until, a boolean or a choice"
    if kind.order not in ("name", "priority") or (kind.order == "priority" and "priority" not in kind.shapes):
        yield f"order {kind.order!r} is neither name nor an attribute priority"
    in_panel = [shape.name for shape in kind.shapes.values() if shape.in_panel]
    if in_panel and not kind.panel_title:
        yield f"it declares no panel_title for {', '.join(in_panel)}"


_kinds: dict[str, Kind] = {}


def define_kind(kind: Kind) -> Kind:
    """Register a kind and return it.

    Raises:
        ImproperlyConfigured: something is not declared, contradicts the rest, or is declared too late; the message
            names the kind and what is wrong.
    """
    problem = next(_problems(kind), "")
    if not problem and all_kinds.cache_info().currsize:
        problem = "it is declared after memoryhub.core.kinds.builtin was imported"
    if problem:
        raise ImproperlyConfigured(f"kind {kind.name!r}: {problem}")
    _kinds[kind.name] = kind
    return kind


@cache
def all_kinds() -> Mapping[str, Kind]:
    """Return the kinds by name. None can be defined afterwards: enums and schemas are made from them."""
    return MappingProxyType(_kinds)
