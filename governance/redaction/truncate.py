"""Make a redacted payload fit its schema again: a placeholder can be longer than the text it replaces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from functools import cache
from typing import Any

from pydantic import BaseModel, ValidationError

from governance.redaction.matching import Find, inside
from memoryhub.config.project_settings import ProjectSettings
from memoryhub.core.events.event_types import event_type
from memoryhub.core.kinds.builtin import DEFAULT_KIND, KINDS
from memoryhub.core.schemas import STORED
from sessions_app.events import PROJECT_CONFIGURED

# Truncating for one rule can break another
_ROUNDS = 3

Path = Sequence[str | int]


# All field names and enum values in an event type's payload: never a person's text
@cache
def field_names(type_name: str) -> frozenset[str]:
    kind = event_type(type_name)
    schemas: list[type[BaseModel]] = [ProjectSettings, *(memory_kind.attributes for memory_kind in KINDS.values())]
    if kind:
        schemas.append(kind.schema)
    return frozenset(name for schema in schemas for name in _names_in(schema))


def _names_in(schema: type[BaseModel]) -> Iterator[str]:
    shape = schema.model_json_schema()
    for part in (shape, *shape.get("$defs", {}).values()):
        yield from part.get("properties", ())
        yield from (word for word in part.get("enum", ()) if isinstance(word, str))


def fit(type_name: str, before: Any, left: Any, finds: list[Find]) -> tuple[list[Find], list[str]]:
    """Change ``left`` until it fits its schema: truncate long texts, restore fields of a fixed form.

    Returns the finds that remain and the restored fields. The log refuses a payload that still does not fit.
    """
    stay: list[str] = []
    for _ in range(_ROUNDS):
        faults = _faults(type_name, left)
        for fault in faults:
            finds = _mended(before, left, fault, finds, stay)
        if not faults:
            break
    return finds, stay


# Validation errors of a payload, and of fields that have a schema of their own
def _faults(type_name: str, payload: Any) -> list[Mapping[str, Any]]:
    kind = event_type(type_name)
    faults = _faults_in(kind.schema, payload, ()) if kind else []
    if type_name == PROJECT_CONFIGURED.name:
        faults += _faults_in(ProjectSettings, _set(payload["settings"]), ("settings",))
    kind_of = payload.get("kind", DEFAULT_KIND)
    has_attributes = "attributes" in (kind.schema.model_fields if kind else payload)  # or a client's own field
    if has_attributes and "attributes" in payload and kind_of in KINDS:
        faults += _faults_in(KINDS[kind_of].attributes, payload["attributes"], ("attributes",))
    return faults


# None resets a setting
def _set(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value is not None}


def _faults_in(schema: type[BaseModel], value: Any, place: tuple[str, ...]) -> list[Mapping[str, Any]]:
    try:
        schema.model_validate(value, context=STORED)
    except ValidationError as error:
        return [{**fault, "loc": (*place, *fault["loc"])} for fault in error.errors(include_url=False)]
    return []


def _mended(before: Any, left: Any, fault: Mapping[str, Any], finds: list[Find], stay: list[str]) -> list[Find]:
    path = _path(left, fault["loc"])
    old, new = _at(before, path), _at(left, path)
    if not isinstance(old, str) or not isinstance(new, str) or old == new:
        return _as_before(before, left, fault["loc"], finds, stay)
    field = _name(path)
    if fault["type"] == "string_too_long":
        cut = new[: fault["ctx"]["max_length"]]
        _at(left, path[:-1])[path[-1]] = cut
        return [Find(field, old, cut, find.spans) if _is_of(find, field, old) else find for find in finds]
    _at(left, path[:-1])[path[-1]] = old
    stay.append(field)
    return [find for find in finds if not _is_of(find, field, old)]


# Restores a whole field after one of its keys became invalid
def _as_before(before: Any, left: Any, loc: Path, finds: list[Find], stay: list[str]) -> list[Find]:
    name = str(loc[0]) if loc else ""
    if left.get(name) == before.get(name):
        return finds
    left[name] = deepcopy(before[name])
    stay.append(name)
    return [find for find in finds if find.field.partition(".")[0].partition("[")[0] != name]


def _is_of(find: Find, field: str, text: str) -> bool:
    return find.field == field and find.before == text


# The location of an error without the union member names that pydantic inserts
def _path(value: Any, loc: Path) -> list[str | int]:
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
