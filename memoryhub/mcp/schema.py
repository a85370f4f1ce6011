"""Minimal input schemas, because clients send them with every conversation.

Titles, null alternatives, empty defaults and limits are left out; an error names the limit. References are inlined.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from memoryhub.core.schemas import EXPLAINED_HERE, LISTED_AS, SELF_EVIDENT, UNLISTED

Schema = dict[str, Any]

FORMATS = ("text", "json")
_DROPPED = frozenset(
    "title minLength maxLength minItems maxItems minimum maximum pattern format additionalProperties $defs".split()
) | {SELF_EVIDENT, EXPLAINED_HERE}
# Keys kept in a field's LISTED_AS form.
_KEPT = frozenset({"description", "default"})
# The server's instructions explain common arguments: these are listed with name and type only, …
_EXPLAINED_ONCE: dict[str, Schema] = {
    "limit": {"type": "integer"},
    "cursor": {"type": "string"},
    "scope": {"type": "string"},
}
# … and these, like ``format``, are not listed. A budget with a default, as of a context pack, is.
_ONLY_IN_INSTRUCTIONS = frozenset({"compact", "max_tokens"})
_EMPTY_DEFAULTS: tuple[object, ...] = (None, "", [], {}, False)


def input_schema(model: type[BaseModel]) -> Schema:
    full = model.model_json_schema()
    definitions = full.get("$defs", {})
    fields = {name: field for name, field in full.get("properties", {}).items() if _is_listed(name, field)}
    properties = {name: _listed(name, field, definitions) for name, field in fields.items()}
    required = full.get("required")
    return {"type": "object", "properties": properties, **({"required": required} if required else {})}


def _is_listed(name: str, field: Schema) -> bool:
    return not field.get(UNLISTED) and (name not in _ONLY_IN_INSTRUCTIONS or bool(field.get("default")))


def _listed(name: str, field: Schema, definitions: Schema) -> Schema:
    if name in _EXPLAINED_ONCE and not field.get(EXPLAINED_HERE):
        return dict(_EXPLAINED_ONCE[name])
    slim = _slim(field, definitions)
    if field.get(SELF_EVIDENT) or name in _EXPLAINED_ONCE:
        slim.pop("description", None)
    return slim


def _slim(schema: Schema, definitions: Schema) -> Schema:
    found = _resolve(schema, definitions)
    if LISTED_AS in found:
        short: Schema = {**found.pop(LISTED_AS), **{key: found[key] for key in _KEPT & found.keys()}}
        return short
    slim: Schema = {}
    for key, value in found.items():
        if key in _DROPPED or _is_empty_default(key, value):
            continue
        slim[key] = _slim_value(key, value, definitions)
    if "enum" in slim or "const" in slim:
        slim.pop("type", None)
    return slim


def _is_empty_default(key: str, value: Any) -> bool:
    return key == "default" and value in _EMPTY_DEFAULTS


def _resolve(schema: Schema, definitions: Schema) -> Schema:
    # Merges the reference and a single non-null alternative; keys next to them win.
    found = dict(schema)
    if "$ref" in found:
        target = _resolve(definitions[found.pop("$ref").rpartition("/")[2]], definitions)
        target.pop("description", None)
        found = {**target, **found}
    if "anyOf" in found:
        choices = [choice for choice in found.pop("anyOf") if choice.get("type") != "null"]
        if len(choices) == 1:
            return {**_resolve(choices[0], definitions), **found}
        found["anyOf"] = choices
    return found


def _slim_value(key: str, value: Any, definitions: Schema) -> Any:
    if key == "properties":
        return {name: _slim(field, definitions) for name, field in value.items()}
    if key == "anyOf":
        return [_slim(choice, definitions) for choice in value]
    return _slim(value, definitions) if key == "items" else value
