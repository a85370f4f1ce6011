"""What a kind of memory declares about its attributes (decision 39)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from memoryhub.core.schemas import UNLISTED

# Searches filter and rank by these, so each has a column, and the same meaning in every kind.
INDEXED: Mapping[str, str] = {"priority": "integer", "confidence": "number", "valid_until": "date-time"}
_LONGEST_FACT = 500


# How a memory's page shows an attribute.
class Show(StrEnum):
    # In the side panel: a number, a short text, a time, yes or no.
    FACT = "fact"
    # In the side panel: a number with a bar; the schema has the maximum.
    BAR = "bar"
    PROSE = "prose"
    # A list of identifiers.
    NAMES = "names"
    # A list with each entry as a code block.
    BLOCKS = "blocks"
    # The lists ``good`` and ``bad`` of an object, side by side.
    EXAMPLES = "examples"
    # A JSON schema as a table of its properties.
    ARGUMENTS = "arguments"
    JSON = "json"


# What a schema's field declares beside its type: ``Annotated[int, Attribute(show=Show.BAR)]``.
@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute:
    # Default: by the field's type.
    show: Show | None = None
    # Default: the field's name.
    heading: str = ""
    # Shown beside the form field. Default: the field's ``description``.
    help: str = ""
    # Whether searches look in it.
    searched: bool = False
    # Whether it lists files and folders; a commit that touches one makes the memory stale.
    governs: bool = False


# One attribute with its defaults filled in.
@dataclass(frozen=True, slots=True)
class Shape:
    name: str
    attribute: Attribute
    show: Show
    # ``integer``, ``number``, ``boolean``, ``date-time``, ``choice``, ``string``, ``array`` or ``object``.
    type: str
    choices: tuple[str, ...]
    # The fields of an object.
    parts: tuple[str, ...]
    lowest: float
    # 0 if the number has no maximum.
    highest: float
    # Whether tool descriptions leave it out.
    is_unlisted: bool
    default: Any

    @property
    def heading(self) -> str:
        return self.attribute.heading or self.name.replace("_", " ").capitalize()

    @property
    def in_panel(self) -> bool:
        return self.show in (Show.FACT, Show.BAR)

    @property
    def in_code(self) -> bool:
        return self.show in (Show.BLOCKS, Show.EXAMPLES, Show.ARGUMENTS, Show.JSON)


def attribute_of(field: FieldInfo) -> Attribute:
    return next((found for found in field.metadata if isinstance(found, Attribute)), Attribute())


def shapes_of(model: type[BaseModel]) -> dict[str, Shape]:
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
