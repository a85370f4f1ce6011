"""The REST reference: a page made on the server from the OpenAPI schema, readable without JavaScript."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.utils.html import escape, format_html, format_html_join
from django.utils.safestring import SafeString
from markdown_it import MarkdownIt
from ninja import NinjaAPI
from ninja.openapi.docs import DocsBase
from ninja.responses import Response

_METHODS = ("get", "post", "put", "patch", "delete")
_DEPTH = 3
# Shown of the values of an enumeration
_MOST_VALUES = 12
# A parameter in a path
_PLACE = re.compile(r"\{(\w+)\}")
_PLACEHOLDER = r"<\1>"
# Replaced by the address of each request
_ADDRESS = "hub-address.invalid"


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    # ``path``, ``query``, ``header`` or ``body``
    place: str
    type: SafeString
    is_required: bool
    description: str


@dataclass(frozen=True, slots=True)
class Answer:
    status: str
    meaning: str
    # "" without a body
    type: SafeString


@dataclass(frozen=True, slots=True)
class Operation:
    id: str
    method: str
    path: str
    summary: str
    description: str
    parameters: list[Parameter]
    answers: list[Answer]
    # JSON with the required fields, "" without a body
    body: str
    curl: str


class ReferencePage(DocsBase):
    """``/api/v1/docs``; requests sent from it use the admin's session, or the token that was entered."""

    def render_page(self, request: HttpRequest, api: NinjaAPI, **kwargs: Any) -> HttpResponse:
        built = _built(api)
        address = escape(request.build_absolute_uri("/").rstrip("/"))
        context = {
            "api": built.info,
            "description": _rendered(built.info["description"]),
            "routes": SafeString(built.routes.replace(_ADDRESS, address)),
            "openapi": "/api/v1/openapi.json",
        }
        return render(request, "memoryhub/api_docs.html", context)


def show_schema(_: HttpRequest, api: NinjaAPI) -> HttpResponse:
    return HttpResponse(_built(api).openapi, content_type="application/json")


@dataclass(frozen=True, slots=True)
class _Built:
    info: dict[str, Any]
    # The schema as JSON
    openapi: bytes
    # HTML of the routes and schemas, with ``_ADDRESS`` for the address of the hub
    routes: str


# Building takes seconds, and needs no sign-in: once for all requests, also for those that arrive meanwhile
_building = threading.Lock()


def _built(api: NinjaAPI) -> _Built:
    with _building:
        return _build(api)


@cache
def _build(api: NinjaAPI) -> _Built:
    schema = api.get_openapi_schema()
    context = {"groups": groups(schema, _ADDRESS), "schemas": list(schemas(schema))}
    routes = render_to_string("memoryhub/api_routes.html", context)
    return _Built(schema["info"], Response(schema).content, routes)


def _rendered(text: str) -> SafeString:
    rendered: str = MarkdownIt("commonmark", {"html": False}).render(text)
    return SafeString(rendered)  # HTML is escaped


def groups(schema: dict[str, Any], address: str) -> list[tuple[str, list[Operation]]]:
    """Return the operations by tag, in the order of the schema."""
    operations: dict[str, list[Operation]] = {}
    for path, methods in schema["paths"].items():
        for method in _METHODS:
            if operation := methods.get(method):
                tag = operation.get("tags", ["other"])[0]
                operations.setdefault(tag, []).append(_operation(schema, address, path, method, operation))
    return list(operations.items())


def schemas(schema: dict[str, Any]) -> Iterator[tuple[str, list[Parameter]]]:
    """Return the fields of every object that routes take or return, by name."""
    for name, model in sorted(schema["components"]["schemas"].items()):
        if "properties" in model:
            yield name, list(_fields(schema, model))


def _operation(schema: dict[str, Any], address: str, path: str, method: str, operation: dict[str, Any]) -> Operation:
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    parameters = [*_parameters(schema, operation), *(_fields(schema, content) if content else ())]
    body = json.dumps(_example(schema, content), ensure_ascii=False) if content else ""
    return Operation(
        operation["operationId"],
        method.upper(),
        path,
        operation.get("summary", ""),
        operation.get("description", ""),
        parameters,
        [_answer(schema, status, answer) for status, answer in sorted(operation["responses"].items())],
        body,
        _curl(f"{address}{path}{_query(operation)}", method.upper(), body),
    )


def _answer(schema: dict[str, Any], status: str, answer: dict[str, Any]) -> Answer:
    contents: list[dict[str, Any]] = list(answer.get("content", {}).values())
    return Answer(status, answer["description"], _type(schema, contents[0]["schema"]) if contents else SafeString())


def _query(operation: dict[str, Any]) -> str:
    needed = [
        parameter["name"]
        for parameter in operation.get("parameters", ())
        if parameter["in"] == "query" and parameter["required"]
    ]
    return "?" + "&".join(f"{name}=<{name}>" for name in needed) if needed else ""


def _parameters(schema: dict[str, Any], operation: dict[str, Any]) -> Iterator[Parameter]:
    for parameter in operation.get("parameters", ()):
        name, kind = parameter["name"], _type(schema, parameter["schema"])
        yield Parameter(name, parameter["in"], kind, parameter.get("required", False), parameter.get("description", ""))


def _fields(schema: dict[str, Any], content: dict[str, Any]) -> Iterator[Parameter]:
    model = _resolved(schema, content)
    required = model.get("required", ())
    for name, field in model.get("properties", {}).items():
        description = field.get("description", "")
        yield Parameter(name, "body", _type(schema, field), name in required, description)


def _resolved(schema: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    reference: str = part.get("$ref", "")
    model: dict[str, Any] = schema["components"]["schemas"][reference.rpartition("/")[2]] if reference else part
    return model


def _type(schema: dict[str, Any], part: dict[str, Any]) -> SafeString:
    """Return the type in words; objects are links to their fields."""
    model = _resolved(schema, part)
    choices = model.get("anyOf") or model.get("oneOf") or model.get("allOf")
    if choices:
        return format_html_join(
            " or ", "{}", ((kind,) for kind in dict.fromkeys(_type(schema, one) for one in choices))
        )
    if "enum" in model:
        return _joined([json.dumps(value) for value in model["enum"]])
    if "const" in model:
        return _joined([json.dumps(model["const"])])
    if model.get("type") == "array":
        return format_html("list of {}", _type(schema, model.get("items", {})))
    if model is not part and "properties" in model:
        name = part["$ref"].rpartition("/")[2]
        return format_html('<a href="#schema-{}">{}</a>', name, name)
    return _joined(["date-time" if model.get("format") == "date-time" else model.get("type", "any")])


def _joined(values: list[str]) -> SafeString:
    texts = [*values[:_MOST_VALUES], "…"] if len(values) > _MOST_VALUES else values
    return format_html_join(" or ", "{}", ((value,) for value in texts))


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
