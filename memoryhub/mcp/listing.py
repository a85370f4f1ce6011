"""The tools that the server lists: loading, order and names, and their minimal input schemas."""

from __future__ import annotations

import importlib
import json
import os
import re
import sys
from functools import cache
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.utils.module_loading import module_has_submodule
from pydantic import BaseModel

from memoryhub.core.schemas import EXPLAINED_HERE, LISTED_AS, SELF_EVIDENT, UNLISTED
from memoryhub.core.tools import Tool, ToolGroup, all_tools
from memoryhub.mcp.jsonrpc import refuse_constant
from memoryhub.mcp.local import TEST_TOOLS_VARIABLE

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server


Schema = dict[str, Any]
FORMATS = ("text", "json")
_DROPPED = frozenset(
    "title minLength maxLength minItems maxItems minimum maximum pattern format additionalProperties $defs".split()
) | {SELF_EVIDENT, EXPLAINED_HERE}
# Keys that stay beside a field's LISTED_AS form.
_BESIDE_SHORT_FORM = ("description", "default")
# The server's instructions explain common arguments: these are listed with name and type only, …
_EXPLAINED_ONCE: dict[str, Schema] = {
    "limit": {"type": "integer"},
    "cursor": {"type": "string"},
    "scope": {"type": "string"},
}
# … and these, like ``format``, are not listed. A budget with a default, as of a context pack, is.
_ONLY_IN_INSTRUCTIONS = frozenset({"compact", "max_tokens"})
_EMPTY_DEFAULTS: tuple[object, ...] = (None, "", [], {}, False)
_ID = re.compile(r"#\d{1,15}")
_DECLARING = ("tools", "prompts")
_LISTED: dict[str, frozenset[ToolGroup]] = {
    "core": frozenset({ToolGroup.CORE}),
    "work": frozenset({ToolGroup.CORE, ToolGroup.WORK}),
    "full": frozenset(ToolGroup),
}


def load_tools() -> None:
    """Import the registering modules of all apps, and the module that tests name."""
    for app in apps.get_app_configs():
        for name in _DECLARING:
            if module_has_submodule(app.module, name):
                importlib.import_module(f"{app.name}.{name}")
    importlib.import_module("memoryhub.registry.tools")
    if _tests_module():
        importlib.import_module(_tests_module())


def extend_for_tests(server: Server[Any]) -> None:
    extend = getattr(sys.modules.get(_tests_module()), "extend_server", None)
    if extend is not None:
        extend(server)


def _tests_module() -> str:
    return os.environ.get(TEST_TOOLS_VARIABLE, "")


def listed_tools(profile: str) -> list[Tool]:
    # Tools that are not listed can be called too.
    listed = [tool for tool in all_tools() if tool.group in _LISTED[profile]]
    return sorted(listed, key=lambda tool: (list(ToolGroup).index(tool.group), tool.name))


def listed_name(tool: Tool, profile: str) -> str:
    if profile == "full" and tool.full_name:
        return tool.full_name
    return tool.name


def input_schema(model: type[BaseModel], profile: str = "") -> Schema:
    full = _full_schema(model)
    definitions = full.get("$defs", {})
    properties: Schema = {}
    for name, field in full.get("properties", {}).items():
        is_in_instructions = name in _ONLY_IN_INSTRUCTIONS and not field.get("default")
        if field.get(UNLISTED) not in (None, profile) or is_in_instructions:
            continue
        if name in _EXPLAINED_ONCE and not field.get(EXPLAINED_HERE):
            properties[name] = dict(_EXPLAINED_ONCE[name])
            continue
        properties[name] = slim = _slim(field, definitions)
        if field.get(SELF_EVIDENT) or name in _EXPLAINED_ONCE:
            slim.pop("description", None)
    schema = {"type": "object", "properties": properties}
    if full.get("required"):
        schema["required"] = full["required"]
    return schema


def _slim(schema: Schema, definitions: Schema) -> Schema:
    resolved = _resolve(schema, definitions)
    if LISTED_AS in resolved:
        beside = {key: resolved[key] for key in _BESIDE_SHORT_FORM if key in resolved}
        return {**resolved[LISTED_AS], **beside}
    slim: Schema = {}
    for key, value in resolved.items():
        if key in _DROPPED or (key == "default" and value in _EMPTY_DEFAULTS):
            continue
        slim[key] = value
        if key == "properties":
            slim[key] = {name: _slim(field, definitions) for name, field in value.items()}
        elif key == "anyOf":
            slim[key] = [_slim(choice, definitions) for choice in value]
        elif key == "items":
            slim[key] = _slim(value, definitions)
    if "enum" in slim or "const" in slim:
        slim.pop("type", None)
    return slim


def _resolve(schema: Schema, definitions: Schema) -> Schema:
    # Merges the reference and a single non-null alternative; keys next to them win.
    resolved = dict(schema)
    if "$ref" in resolved:
        target = _resolve(definitions[resolved.pop("$ref").rpartition("/")[2]], definitions)
        target.pop("description", None)
        resolved = {**target, **resolved}
    if "anyOf" in resolved:
        choices = [choice for choice in resolved.pop("anyOf") if choice.get("type") != "null"]
        if len(choices) == 1:
            return {**_resolve(choices[0], definitions), **resolved}
        resolved["anyOf"] = choices
    return resolved


def plain_arguments(model: type[BaseModel], arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments as ``model`` takes them.

    Some clients send a list or an object as JSON text, the item of a list without the list, or an id as ``#412``. Where
    the schema leaves no doubt, this is what it stands for; everything else stays as it is.
    """
    full = _full_schema(model)
    plain: dict[str, Any] = _plain_value(full, arguments, full.get("$defs", {}))
    return plain


@cache
def _full_schema(model: type[BaseModel]) -> Schema:
    return model.model_json_schema()


def _plain_value(schema: Schema, value: Any, definitions: Schema) -> Any:
    resolved = _resolve(schema, definitions)
    by_type: dict[str | None, Schema] = {}
    for alternative in resolved.get("anyOf", [resolved]):
        choice = _resolve(alternative, definitions)
        is_text = "enum" in choice or "const" in choice
        by_type[choice.get("type") or ("string" if is_text else None)] = choice
    if None in by_type:
        return value  # anything is accepted
    if isinstance(value, str):
        value = _read_text(value, frozenset(by_type))
    if "array" in by_type and _is_item(value, frozenset(by_type)):
        value = [value]
    if isinstance(value, list) and "array" in by_type:
        items = by_type["array"].get("items", {})
        return [_plain_value(items, item, definitions) for item in value]
    if isinstance(value, dict) and "object" in by_type:
        fields = by_type["object"].get("properties", {})
        return {name: _plain_value(fields.get(name, {}), field, definitions) for name, field in value.items()}
    return value


def _read_text(text: str, types: frozenset[str | None]) -> Any:
    if "integer" in types and "string" not in types and _ID.fullmatch(text):
        return int(text[1:])
    is_json = bool(types & {"array", "object"})
    if "string" in types:
        # A field that takes a text as well as a list keeps every text that is no JSON list.
        is_json = "array" in types and text.lstrip().startswith("[")
    if not is_json:
        return text
    try:
        value = json.loads(text, parse_constant=refuse_constant)
        json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, list | dict) else text


def _is_item(value: Any, types: frozenset[str | None]) -> bool:
    if isinstance(value, str):
        return "string" not in types and bool(value.strip()) and "," not in value and value[0] not in "[{"
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return (is_number and "integer" not in types) or (isinstance(value, dict) and "object" not in types)
