"""Making what is left of a payload fit its schema: what stands in a text's place is often longer than the text was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from pydantic import BaseModel, ValidationError

from governance.redaction.matching import Find, inside
from memoryhub.core.projection import event_type

_ROUNDS = 3
"""A text that was cut may have lost what another rule wants."""

Path = Sequence[str | int]


@cache
def field_names(type_name: str) -> frozenset[str]:
    """Return the names of all fields of a type's payload and of what is in it: keys, and nobody's text."""
    kind = event_type(type_name)
    if kind is None:
        return frozenset()
    shape = kind.schema.model_json_schema()
    parts = [shape, *shape.get("$defs", {}).values()]
    return frozenset(name for part in parts for name in part.get("properties", ()))


def fit(type_name: str, before: Any, left: Any, finds: list[Find]) -> tuple[list[Find], list[str]]:
    """Change ``left`` until it fits: texts that became too long are cut, and those of a fixed form stay.

    Returns the finds as they are then, and the fields that stay as they were. What fits in no way is left to the log,
    which refuses it.
    """
    kind = event_type(type_name)
    stay: list[str] = []
    for _ in range(_ROUNDS):
        faults = _faults(kind.schema, left) if kind else []
        for fault in faults:
            finds = _mended(before, left, fault, finds, stay)
        if not faults:
            break
    return finds, stay


def _faults(schema: type[BaseModel], payload: Any) -> Sequence[Mapping[str, Any]]:
    try:
        schema.model_validate(payload)
    except ValidationError as error:
        return error.errors(include_url=False, include_input=False)
    return []


def _mended(before: Any, left: Any, fault: Mapping[str, Any], finds: list[Find], stay: list[str]) -> list[Find]:
    path = _path(left, fault["loc"])
    old, new = _at(before, path), _at(left, path)
    if not path or not isinstance(old, str) or not isinstance(new, str) or old == new:
        return finds
    field = _name(path)
    if fault["type"] == "string_too_long":
        cut = new[: fault["ctx"]["max_length"]]
        _at(left, path[:-1])[path[-1]] = cut
        return [Find(field, old, cut, find.spans) if _is_of(find, field, old) else find for find in finds]
    _at(left, path[:-1])[path[-1]] = old
    stay.append(field)
    return [find for find in finds if not _is_of(find, field, old)]


def _is_of(find: Find, field: str, text: str) -> bool:
    return find.field == field and find.before == text


def _path(value: Any, loc: Path) -> list[str | int]:
    """Return a fault's place without the names of alternatives, which pydantic puts between."""
    path: list[str | int] = []
    for key in loc:
        if (isinstance(value, dict) and key in value) or (isinstance(value, list) and isinstance(key, int)):
            value = value[key]  # type: ignore[index]
            path.append(key)
    return path


def _at(value: Any, path: Path) -> Any:
    for key in path:
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def _name(path: Path) -> str:
    name = ""
    for key in path:
        name = inside(name, key)
    return name
