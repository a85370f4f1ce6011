"""The REST reference: a page made on the server from the OpenAPI schema, readable without JavaScript.

Swagger UI and Redoc, which ninja brings, need images from ``data:`` addresses or style sheets made by scripts. The
content security policy refuses both.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterable, Iterator
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

Schema = dict[str, Any]

_METHODS = ("get", "post", "put", "patch", "delete")
_DEPTH = 3
# How many values of an enumeration are shown
_MOST_VALUES = 12
# A parameter in a path
_PLACE = re.compile(r"\{(\w+)\}")
_PLACEHOLDER = r"<\1>"
# Replaced by the address of each request
_ADDRESS = "hub-address.invalid"


@dataclass(frozen=True, slots=True)
class DescribedField:
    name: str
    # ``path``, ``query``, ``header`` or ``body``
    place: str
    type: SafeString
    is_required: bool
    description: str


class ReferencePage(DocsBase):
    """``/api/v1/docs``; requests sent from it use the admin's session, or the token that was entered."""

    def render_page(self, request: HttpRequest, api: NinjaAPI, **kwargs: Any) -> HttpResponse:
        built = _built(api)
        address = escape(request.build_absolute_uri("/").rstrip("/"))
        description: str = MarkdownIt("commonmark", {"html": False}).render(built.info["description"])
        context = {
            "api": built.info,
            "description": SafeString(description),  # HTML is escaped
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


def groups(schema: Schema, address: str) -> list[tuple[str, list[dict[str, Any]]]]:
    """Return the operations by tag, in the order of the schema."""
    operations: dict[str, list[dict[str, Any]]] = {}
    for path, methods in schema["paths"].items():
        for method in _METHODS:
            if operation := methods.get(method):
                tag = operation.get("tags", ["other"])[0]
                operations.setdefault(tag, []).append(_operation(schema, address, path, method, operation))
    return list(operations.items())


def schemas(schema: Schema) -> Iterator[tuple[str, list[DescribedField]]]:
    """Return the fields of every object that routes take or return, by name."""
    for name, model in sorted(schema["components"]["schemas"].items()):
        if "properties" in model:
            yield name, list(_fields(schema, model))


def _operation(schema: Schema, address: str, path: str, method: str, operation: Schema) -> dict[str, Any]:
    parameters = []
    for parameter in operation.get("parameters", ()):
        kind = _type(schema, parameter["schema"])
        is_required, description = parameter.get("required", False), parameter.get("description", "")
        parameters.append(DescribedField(parameter["name"], parameter["in"], kind, is_required, description))
    required = [parameter.name for parameter in parameters if parameter.place == "query" and parameter.is_required]
    query = "&".join(f"{name}=<{name}>" for name in required)
    url = f"{address}{path}?{query}".removesuffix("?")
    body = ""
    if content := operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema"):
        parameters += _fields(schema, content)
        body = json.dumps(_example(schema, content), ensure_ascii=False)
    answers = []
    for status, answer in sorted(operation["responses"].items()):
        kind = SafeString()
        for content in list(answer.get("content", {}).values())[:1]:
            kind = _type(schema, content["schema"])
        answers.append({"status": status, "meaning": answer["description"], "type": kind})
    return {
        "id": operation["operationId"],
        "method": method.upper(),
        "path": path,
        "summary": operation.get("summary", ""),
        "description": operation.get("description", ""),
        "parameters": parameters,
        "answers": answers,
        "body": body,
        "curl": _curl(url, method.upper(), body),
    }


def _fields(schema: Schema, content: Schema) -> Iterator[DescribedField]:
    model = _resolved(schema, content)
    required = model.get("required", ())
    for name, field in model.get("properties", {}).items():
        yield DescribedField(name, "body", _type(schema, field), name in required, field.get("description", ""))


def _resolved(schema: Schema, part: Schema) -> Schema:
    if "$ref" not in part:
        return part
    model: Schema = schema["components"]["schemas"][part["$ref"].rpartition("/")[2]]
    return model


def _type(schema: Schema, part: Schema) -> SafeString:
    """Return the type in words; objects are links to their fields."""
    model = _resolved(schema, part)
    choices = model.get("anyOf") or model.get("oneOf") or model.get("allOf")
    if choices:
        return _joined_types(dict.fromkeys(_type(schema, choice) for choice in choices))
    values = model.get("enum", [])
    if "const" in model:
        values = [model["const"]]
    if values:
        texts = list(map(json.dumps, values))
        if len(texts) > _MOST_VALUES:
            texts[_MOST_VALUES:] = ["…"]
        return _joined_types(texts)
    if model.get("type") == "array":
        return format_html("list of {}", _type(schema, model.get("items", {})))
    if model is not part and "properties" in model:
        name = part["$ref"].rpartition("/")[2]
        return format_html('<a href="#schema-{}">{}</a>', name, name)
    if model.get("format") == "date-time":
        return SafeString("date-time")
    return format_html("{}", model.get("type", "any"))


def _joined_types(texts: Iterable[str]) -> SafeString:
    return format_html_join(" or ", "{}", zip(texts))


# The required fields, each with a value of its type
def _example(schema: Schema, part: Schema, depth: int = 0) -> Any:
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
    lines = [f"curl -X {method}".removesuffix(" -X GET"), '-H "Authorization: Bearer $TOKEN"']
    if body:
        lines += ["-H 'Content-Type: application/json'", "-d '" + body.replace("'", "'\\''") + "'"]
    return " \\\n  ".join([*lines, f"'{_PLACE.sub(_PLACEHOLDER, url)}'"])
