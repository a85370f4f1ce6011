"""What a kind of memory declares about each of its attributes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from memoryhub.core.schemas import UNLISTED

# Attributes that searches filter and rank by have a column of the table, so they mean the same in every kind.
INDEXED: Mapping[str, str] = {"priority": "integer", "confidence": "number", "valid_until": "date-time"}
_LONGEST_FACT = 500


class Show(StrEnum):
    """How the page of a memory shows an attribute: in the side panel, or as a section below the text."""

    FACT = "fact"
    """In the side panel: a number, a short text, a time, yes or no."""
    BAR = "bar"
    """In the side panel: a number and a bar; the schema has the maximum."""
    PROSE = "prose"
    NAMES = "names"
    """A list of identifiers."""
    BLOCKS = "blocks"
    """Each entry of a list as a block of code."""
    EXAMPLES = "examples"
    """The lists ``good`` and ``bad`` of an object beside each other."""
    ARGUMENTS = "arguments"
    """A JSON schema as a table of its properties."""
    JSON = "json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute:
    """What a field of a kind's schema declares beside its type, as ``Annotated[int, Attribute(show=Show.BAR)]``."""

    show: Show | None = None
    """Default: by the type of the field."""
    heading: str = ""
    """Default: the name of the field."""
    help: str = ""
    """Shown beside the field of the form. Default: the field's ``description``."""
    searched: bool = False
    """Whether searches find the memory by it."""
    governs: bool = False
    """Whether it lists files and folders; a commit that touches one makes the memory stale."""


@dataclass(frozen=True, slots=True)
class Shape:
    """One attribute, with the defaults filled in from its type."""

    name: str
    attribute: Attribute
    show: Show
    type: str
    """``integer``, ``number``, ``boolean``, ``date-time``, ``choice``, ``string``, ``array`` or ``object``."""
    choices: tuple[str, ...]
    parts: tuple[str, ...]
    """The fields of an object."""
    lowest: float
    highest: float
    """0 if the number has no maximum."""
    is_unlisted: bool
    """Whether descriptions of tools leave it out."""
    default: Any

    @property
    def heading(self) -> str:
        """The declared heading, or the name in words."""
        return self.attribute.heading or self.name.replace("_", " ").capitalize()

    @property
    def in_panel(self) -> bool:
        """Whether the side panel shows it, instead of a section of its own."""
        return self.show in (Show.FACT, Show.BAR)

    @property
    def in_code(self) -> bool:
        """Whether it is shown in the fixed-width face."""
        return self.show in (Show.BLOCKS, Show.EXAMPLES, Show.ARGUMENTS, Show.JSON)


def attribute_of(field: FieldInfo) -> Attribute:
    """Return what a field of a schema declares."""
    return next((found for found in field.metadata if isinstance(found, Attribute)), Attribute())


def shapes_of(model: type[BaseModel]) -> dict[str, Shape]:
    """Return the attributes of a schema by name, in its order."""
    schema = model.model_json_schema()
    parts, described = schema.get("$defs", {}), schema.get("properties", {})
    return {name: _shape(name, field, described[name], parts) for name, field in model.model_fields.items()}


def _shape(name: str, field: FieldInfo, described: Mapping[str, Any], parts: Mapping[str, Any]) -> Shape:
    first = next(iter(described.get("anyOf", ())), described)
    found = parts.get(first.get("$ref", "").rpartition("/")[2], first)
    value_type = "choice" if "enum" in found else found.get("format") or found.get("type", "object")
    attribute = attribute_of(field)
    return Shape(
        name=name,
        attribute=attribute,
        show=attribute.show or _default_show(value_type, found),
        type=value_type,
        choices=tuple(found.get("enum", ())),
        parts=tuple(found.get("properties", ())),
        lowest=found.get("minimum", 0),
        highest=found.get("maximum", 0),
        is_unlisted=bool(described.get(UNLISTED)),
        default=field.get_default(call_default_factory=True),
    )


def _default_show(value_type: str, described: Mapping[str, Any]) -> Show:
    if value_type == "string":
        return Show.FACT if described.get("maxLength", _LONGEST_FACT + 1) <= _LONGEST_FACT else Show.PROSE
    if value_type == "array":
        return Show.NAMES if described["items"].get("type") == "string" else Show.JSON
    return Show.JSON if value_type == "object" else Show.FACT
