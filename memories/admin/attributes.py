"""A kind's attributes as form fields, derived from its schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic.fields import FieldInfo

from memoryhub.core.admin.schema_form import WITHIN, initial_values, nested, schema_fields
from memoryhub.core.kinds import KINDS, attribute_of


def attribute_fields(kind: str) -> dict[str, Any]:
    """Return form fields by name; a nested field is named ``outer__inner``."""
    return dict(schema_fields(KINDS[kind].attributes, _help))


def typed_attributes(kind: str, cleaned: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes to store, without empty ones.

    Raises:
        ValidationError: a value is invalid.
    """
    attributes = nested({name: cleaned.get(name) for name in attribute_fields(kind)})
    return KINDS[kind].attributes.model_validate(attributes).model_dump(mode="json", exclude_unset=True)


def shown_attributes(kind: str, attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the fields show of a memory's attributes."""
    return initial_values(attribute_fields(kind), attributes)


def outer_name(name: str) -> str:
    """Return the attribute of a form field: ``examples`` for ``examples__good``."""
    return name.partition(WITHIN)[0]


def _help(field: FieldInfo) -> str:
    text = (attribute_of(field).help or field.description or "").rstrip(".")
    return f"{text[:1].upper()}{text[1:]}." if text else ""
