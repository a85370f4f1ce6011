"""Input schemas as small as a model can use them: a client sends them with every conversation.

From pydantic's JSON schema: titles, null alternatives, empty defaults, and limits that no sensible call meets go (an
error names the limit that was broken); references are resolved in place, without what they say of themselves.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from memoryhub.core.schemas import LISTED_AS, SELF_EVIDENT, UNLISTED

FORMATS = ("text", "json")
_DROPPED = frozenset(
    "title minLength maxLength minItems maxItems minimum maximum pattern additionalProperties $defs".split()
) | {SELF_EVIDENT}
_KEPT = frozenset({"description", "default"})
"""What stays of a field that is listed in a shorter form."""
_EXPLAINED_ONCE = frozenset({"limit", "cursor", "compact", "max_tokens", "format"})
"""Arguments that mean the same everywhere: the server's instructions explain them, the schemas only name them."""
_EMPTY_DEFAULTS: tuple[object, ...] = (None, "", [], {}, False)

Schema = dict[str, Any]


def input_schema(model: type[BaseModel]) -> Schema:
    """Return the slim schema of ``model`` with the ``format`` argument that every tool takes."""
    full = model.model_json_schema()
    definitions = full.get("$defs", {})
    fields = full.get("properties", {})
    properties = {name: _slim(field, definitions) for name, field in fields.items() if not field.get(UNLISTED)}
    for name, slim in properties.items():
        if name in _EXPLAINED_ONCE or fields[name].get(SELF_EVIDENT):
            slim.pop("description", None)
    properties["format"] = {"enum": list(FORMATS)}
    required = full.get("required")
    return {"type": "object", "properties": properties, **({"required": required} if required else {})}


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
    """Return ``schema`` with its reference and its only non-null alternative merged in; what stands outside wins."""
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
