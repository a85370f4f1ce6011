"""Making what is left of a payload fit its schema: what stands in a text's place is often longer than the text was."""

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

_ROUNDS = 3
"""A text that was cut may have lost what another rule wants."""

Path = Sequence[str | int]


@cache
def field_names(type_name: str) -> frozenset[str]:
    """Return the names of all fields of a type's payload and of what is in it: keys, and nobody's text."""
    kind = event_type(type_name)
    schemas: list[type[BaseModel]] = [ProjectSettings, *(each.attributes for each in KINDS.values())]
    if kind:
        schemas.append(kind.schema)
    return frozenset(name for schema in schemas for name in _names_in(schema))


def _names_in(schema: type[BaseModel]) -> Iterator[str]:
    shape = schema.model_json_schema()
    for part in (shape, *shape.get("$defs", {}).values()):
        yield from part.get("properties", ())
        yield from (word for word in part.get("enum", ()) if isinstance(word, str))


def fit(type_name: str, before: Any, left: Any, finds: list[Find]) -> tuple[list[Find], list[str]]:
    """Change ``left`` until it fits: texts that became too long are cut, and those of a fixed form stay.

    Returns the finds as they are then, and the fields that stay as they were. What fits in no way is left to the log,
    which refuses it.
    """
    stay: list[str] = []
    for _ in range(_ROUNDS):
        faults = _faults(type_name, left)
        for fault in faults:
            finds = _mended(before, left, fault, finds, stay)
        if not faults:
            break
    return finds, stay


def _faults(type_name: str, payload: Any) -> list[Mapping[str, Any]]:
    """Return what is wrong with a payload, and with what one of its fields holds that has a schema of its own."""
    kind = event_type(type_name)
    faults = _faults_in(kind.schema, payload, ()) if kind else []
    if type_name == PROJECT_CONFIGURED.name:
        faults += _faults_in(ProjectSettings, _set(payload["settings"]), ("settings",))
    kind_of = payload.get("kind", DEFAULT_KIND)
    if "attributes" in payload and kind_of in KINDS:
        faults += _faults_in(KINDS[kind_of].attributes, payload["attributes"], ("attributes",))
    return faults


def _set(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that were given a value: None takes one back."""
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


def _as_before(before: Any, left: Any, loc: Path, finds: list[Find], stay: list[str]) -> list[Find]:
    """Take back all of a field in which a key was none of those that may be there."""
    name = str(loc[0]) if loc else ""
    if left.get(name) == before.get(name):
        return finds
    left[name] = deepcopy(before[name])
    stay.append(name)
    return [find for find in finds if find.field.partition(".")[0].partition("[")[0] != name]


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
