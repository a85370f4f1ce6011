from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from memoryhub.core.errors import Invalid
from memoryhub.core.kinds import INDEXED, KINDS
from memoryhub.core.validation import explain

# Characters of all attributes together, as JSON
MAX_ATTRIBUTES = 50_000
# Factors on the score of expired and of proposed memories
EXPIRED_WEIGHT = 0.5
PROPOSED_WEIGHT = 0.7
# In the titles of imported sections, between a file and its headings
BETWEEN_HEADINGS = " › "


def check_type(kind: str, name: str) -> str:
    """Return ``given``, or the kind's default if it is empty.

    Raises:
        Invalid: the kind has no such type.
    """
    declared = KINDS[kind]
    if name and declared.types and name not in declared.types:
        raise Invalid(f"'type' must be one of {', '.join(declared.types)} for kind {kind}, not {name[:80]!r}")
    return name or declared.default_type


def check_attributes(kind: str, attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the given attributes as JSON data; None removes an attribute.

    Raises:
        Invalid: the kind has no such attribute, or a value breaks a rule.
    """
    schema = KINDS[kind].attributes
    unknown = sorted(set(attributes) - set(schema.model_fields))
    if unknown:
        names = ", ".join(schema.model_fields)
        raise Invalid(f"kind {kind} has no attribute {unknown[0][:80]!r}; it has: {names}")
    try:
        checked = schema.model_validate({name: value for name, value in attributes.items() if value is not None})
    except ValidationError as error:
        raise Invalid(f"attributes of kind {kind}: {explain(error)}") from error
    values = checked.model_dump(mode="json", exclude_unset=True)
    if values.get("check"):
        from memories.validity.check_runs import parse_check  # here, because few memories have one

        parse_check(values["check"])
    if len(json.dumps(values)) > MAX_ATTRIBUTES:
        raise Invalid(f"attributes are longer than {MAX_ATTRIBUTES:,} characters together; shorten them")
    return values


def number_defaults(kind: str) -> dict[str, int | float]:
    """Return the attributes that are a number unless it is given, such as the priority of a guideline."""
    fields = KINDS[kind].attributes.model_fields
    return {name: field.default for name, field in fields.items() if isinstance(field.default, int | float)}


def attribute_columns(kind: str, attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes that have a column of their own; None for those that the kind lacks."""
    columns: dict[str, Any] = dict.fromkeys(INDEXED)
    if KINDS[kind].indexed:
        whole = KINDS[kind].attributes.model_validate(attributes)
        columns |= {name: getattr(whole, name) for name in KINDS[kind].indexed}
    return columns


def attribute_text(kind: str, attributes: Mapping[str, Any]) -> str:
    searched = (name for name, shape in KINDS[kind].shapes.items() if shape.attribute.searched)
    return "\n".join(str(attributes[name]) for name in searched if attributes.get(name))
