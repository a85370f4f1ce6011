"""The REST reference: a page made on the server from the OpenAPI schema, readable without JavaScript."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from ninja import NinjaAPI
from ninja.openapi.docs import DocsBase

_METHODS = ("get", "post", "put", "patch", "delete")
_DEPTH = 3
# A parameter in a path
_PLACE = re.compile(r"\{(\w+)\}")
_PLACEHOLDER = r"<\1>"


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    # ``path``, ``query``, ``header`` or ``body``
    place: str
    type: str
    is_required: bool
    description: str


@dataclass(frozen=True, slots=True)
class Operation:
    id: str
    method: str
    path: str
    summary: str
    description: str
    parameters: list[Parameter]
    # Status and meaning
    answers: list[tuple[str, str]]
    # JSON with the required fields, "" without a body
    body: str
    curl: str


class ReferencePage(DocsBase):
    """``/api/v1/docs``; requests sent from it use the admin's session, or the token that was entered."""

    def render_page(self, request: HttpRequest, api: NinjaAPI, **kwargs: Any) -> HttpResponse:
        schema = api.get_openapi_schema()
        address = request.build_absolute_uri("/").rstrip("/")
        context = {
            "api": schema["info"],
            "groups": groups(schema, address),
            "openapi": "/api/v1/openapi.json",
        }
        return render(request, "memoryhub/api_docs.html", context)


def groups(schema: dict[str, Any], address: str) -> list[tuple[str, list[Operation]]]:
    """Return the operations by tag, in the order of the schema."""
    found: dict[str, list[Operation]] = {}
    for path, methods in schema["paths"].items():
        for method in _METHODS:
            if operation := methods.get(method):
                tag = operation.get("tags", ["other"])[0]
                found.setdefault(tag, []).append(_operation(schema, address, path, method, operation))
    return list(found.items())


def _operation(schema: dict[str, Any], address: str, path: str, method: str, found: dict[str, Any]) -> Operation:
    content = found.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    parameters = [*_parameters(schema, found), *(_fields(schema, content) if content else ())]
    body = json.dumps(_example(schema, content), ensure_ascii=False) if content else ""
    return Operation(
        found["operationId"],
        method.upper(),
        path,
        found.get("summary", ""),
        found.get("description", ""),
        parameters,
        [(status, answer["description"]) for status, answer in sorted(found["responses"].items())],
        body,
        _curl(f"{address}{path}", method.upper(), body),
    )


def _parameters(schema: dict[str, Any], operation: dict[str, Any]) -> Iterator[Parameter]:
    for found in operation.get("parameters", ()):
        name, kind = found["name"], _type(schema, found["schema"])
        yield Parameter(name, found["in"], kind, found.get("required", False), found.get("description", ""))


def _fields(schema: dict[str, Any], content: dict[str, Any]) -> Iterator[Parameter]:
    model = _resolved(schema, content)
    required = model.get("required", ())
    for name, field in model.get("properties", {}).items():
        description = field.get("description", "")
        yield Parameter(name, "body", _type(schema, field), name in required, description)


def _resolved(schema: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    reference: str = part.get("$ref", "")
    found: dict[str, Any] = schema["components"]["schemas"][reference.rpartition("/")[2]] if reference else part
    return found


def _type(schema: dict[str, Any], part: dict[str, Any], depth: int = 0) -> str:
    part = _resolved(schema, part)
    choices = part.get("anyOf") or part.get("oneOf") or part.get("allOf")
    if depth >= _DEPTH:
        return "object"
    if choices:
        return " or ".join(dict.fromkeys(_type(schema, choice, depth + 1) for choice in choices))
    if "enum" in part:
        return " or ".join(json.dumps(value) for value in part["enum"])
    if "const" in part:
        return json.dumps(part["const"])
    if part.get("type") == "array":
        return f"list of {_type(schema, part.get('items', {}), depth + 1)}"
    return str(part.get("format") if part.get("format") == "date-time" else part.get("type", "any"))


# The required fields, each with a value of its type
def _example(schema: dict[str, Any], part: dict[str, Any], depth: int = 0) -> Any:
    part = _resolved(schema, part)
    choices = part.get("anyOf") or part.get("oneOf") or part.get("allOf")
    if choices and depth < _DEPTH:
        return _example(schema, choices[0], depth + 1)
    if "enum" in part or "const" in part:
        return part.get("const", part.get("enum", [""])[0])
    kind = part.get("type")
    if kind == "object" or "properties" in part:
        fields = part.get("properties", {})
        return {name: _example(schema, fields[name], depth + 1) for name in part.get("required", ()) if name in fields}
    values = {"array": [], "integer": 1, "number": 1.0, "boolean": True, "null": None}
    return values.get(str(kind), "text")


def _curl(url: str, method: str, body: str) -> str:
    lines = [f"curl -X {method}" if method != "GET" else "curl", '-H "Authorization: Bearer $TOKEN"']
    if body:
        lines += ["-H 'Content-Type: application/json'", "-d '" + body.replace("'", "'\\''") + "'"]
    return " \\\n  ".join([*lines, f"'{_PLACE.sub(_PLACEHOLDER, url)}'"])
