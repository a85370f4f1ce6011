"""The kinds of memory: what each has of its own, and which types it knows.

They share one table and one life; a new kind is a new schema and a line in ``KINDS``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, JsonValue, StringConstraints, ValidationError, field_validator

from memories.models.memory import MemoryKind, MemoryType
from memoryhub.core.errors import Invalid
from memoryhub.core.schemas import Moment, Payload
from memoryhub.core.validation import explain

MAX_ATTRIBUTES = 50_000
"""Characters of all attributes together, as JSON."""

EXPIRED_WEIGHT = 0.5
"""How much what has expired still counts when results are ranked."""

PROPOSED_WEIGHT = 0.7
"""How much what waits for a person counts."""

Text = Annotated[str, StringConstraints(max_length=10_000)]


class ObservationAttributes(Payload):
    """What an observation has of its own."""

    related_chunks: list[Annotated[str, StringConstraints(min_length=1, max_length=200)]] = Field(
        default_factory=list, max_length=64, description="ids of pieces of code that it is about"
    )


class Examples(Payload):
    """How a guideline is followed, and how it is not."""

    good: list[Text] = Field(default_factory=list, max_length=20)
    bad: list[Text] = Field(default_factory=list, max_length=20)


class GuidelineAttributes(Payload):
    """What a guideline has of its own."""

    priority: int = Field(50, ge=0, le=100, description="0 to 100, higher is more important")
    rationale: Text = Field("", description="why it exists")
    examples: Examples = Field(default_factory=Examples, description="{good: [...], bad: [...]}")


class ToolAttributes(Payload):
    """What a tool has of its own."""

    parameters: dict[str, JsonValue] = Field(default_factory=dict, description="a JSON schema")
    examples: list[JsonValue] = Field(default_factory=list, max_length=20, description="calls of it")
    constraints: Text = Field("", description="when and how to use it")

    @field_validator("parameters")
    @classmethod
    def _is_json_schema(cls, parameters: dict[str, JsonValue]) -> dict[str, JsonValue]:
        if parameters:
            _check_json_schema(parameters)
        return parameters


class KnowledgeAttributes(Payload):
    """What knowledge has of its own."""

    confidence: float = Field(1.0, ge=0.0, le=1.0, description="0 to 1")
    valid_until: Moment | None = Field(None, description="ISO time after which it is expired")


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of memory."""

    attributes: type[Payload]
    types: tuple[str, ...]
    """Those it knows; empty where any word is one."""
    default_type: str


KINDS: Mapping[MemoryKind, Kind] = {
    MemoryKind.OBSERVATION: Kind(ObservationAttributes, tuple(MemoryType.values), MemoryType.NOTE.value),
    MemoryKind.GUIDELINE: Kind(GuidelineAttributes, (), "general"),
    MemoryKind.TOOL: Kind(ToolAttributes, ("mcp", "cli", "function", "api"), "function"),
    MemoryKind.KNOWLEDGE: Kind(KnowledgeAttributes, ("decision", "fact", "context", "reference"), "fact"),
}


def check_type(kind: MemoryKind, given: str) -> str:
    """Return ``given``, or the kind's default where it is empty.

    Raises:
        Invalid: the kind has no such type.
    """
    known = KINDS[kind]
    if given and known.types and given not in known.types:
        raise Invalid(f"'type' must be one of {', '.join(known.types)} for kind {kind}, not {given[:80]!r}")
    return given or known.default_type


def check_attributes(kind: MemoryKind, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes as they are kept: as JSON data, only those that were given; None takes one away.

    Raises:
        Invalid: the kind has no such attribute, or its value breaks a rule.
    """
    schema = KINDS[kind].attributes
    unknown = sorted(set(given) - set(schema.model_fields))
    if unknown:
        known = ", ".join(schema.model_fields)
        raise Invalid(f"kind {kind} has no attribute {unknown[0][:80]!r}; it has: {known}")
    try:
        checked = schema.model_validate({name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        raise Invalid(f"attributes of kind {kind}: {explain(error)}") from error
    kept = checked.model_dump(mode="json", exclude_unset=True)
    if len(json.dumps(kept)) > MAX_ATTRIBUTES:
        raise Invalid(f"attributes are longer than {MAX_ATTRIBUTES:,} characters together; shorten them")
    return kept


def attribute_columns(kind: MemoryKind, attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes that searches and lists filter or order by, each in its column."""
    schema = KINDS[kind].attributes
    if not attributes and kind is MemoryKind.OBSERVATION:
        return {"priority": None, "confidence": None, "valid_until": None}
    whole = schema.model_validate(attributes)
    return {name: getattr(whole, name, None) for name in ("priority", "confidence", "valid_until")}


def attribute_text(attributes: Mapping[str, Any]) -> str:
    """Return the words of attributes by which a memory is to be found."""
    return "\n".join(str(attributes[name]) for name in ("rationale", "constraints") if attributes.get(name))


def _check_json_schema(schema: dict[str, JsonValue]) -> None:
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import validator_for

    try:
        validator_for(schema).check_schema(schema)
    except SchemaError as error:
        at = "/".join(str(part) for part in error.absolute_path)
        raise ValueError(f"is not a valid JSON schema{f' at {at}' if at else ''}: {error.message[:200]}") from error
