"""What a hub answers about a project: reading tools, resources, completions and selectors; and its statements."""

from __future__ import annotations

import inspect
import json
import pkgutil
import re
import sys
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime
from importlib import import_module
from itertools import product
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

from django.db import DatabaseError, connections, transaction
from django.db.models import Model, QuerySet
from mcp.shared.uri_template import UriTemplate
from pydantic import BaseModel

from governance.models import Hold
from governance.staleness.stale import Due, Queue, queue
from memories.models import Memory
from memories.schemas import MemorySearch
from memories.search import engine
from memories.search.parsed_query import parse_search
from memoryhub.core.backends.sqlite.base import DatabaseWrapper
from memoryhub.core.errors import HubError
from memoryhub.core.paging import answering
from memoryhub.core.stores.routing import require_current_alias
from memoryhub.core.tools import Resource, Tool, all_prompts, all_resources, all_tools
from memoryhub.mcp.resources import Resources
from sessions_app.models import Session
from tests.engines.values import MOST, NOW, PAGE, Values, entity_of, inputs, spread

# What differs: sizes, and the version of the database
_OF_THE_ENGINE = {"memory_stats": ("bytes", "sqlite")}
# Every so many calls are answered as text too, which is made of the same data
_TEXTS = 3
_TYPES = {"limit": int, "offset": int, "max_tokens": int, "include_deleted": bool, "threshold": float}
_PREFIXES = ("", "1", "a", "tide,z", "Ä", "\U0010ffff", "100%")

Answers = dict[str, Any]


def tool_answers(values: Values, *, every: int = 1) -> Answers:
    """Map calls, or every few of them, to answers as JSON, and some to their texts; lists are read to the end."""
    reading = [tool for tool in all_tools() if not tool.writes]
    return {
        call: answer
        for tool in reading
        for number, given in enumerate(inputs(tool.input, values, entity_of(tool.name))[::every])
        for call, answer in _pages(tool, given, with_text=number % _TEXTS == 0)
    }


def _pages(tool: Tool, given: dict[str, Any], *, with_text: bool) -> Iterator[tuple[str, Any]]:
    cursor: Any = True
    while cursor:
        answer = _answer(tool, given, as_json=True)
        yield f"{tool.name} {json.dumps(given, default=str, ensure_ascii=False)}", answer
        if with_text:
            yield f"{tool.name} {json.dumps({**given, 'format': 'text'}, default=str)}", _answer(tool, given)
        cursor = given.get("limit") == PAGE and answer.get("data", {}).get("meta", {}).get("next_cursor")
        given = {**given, "cursor": cursor}


def _answer(tool: Tool, given: dict[str, Any], *, as_json: bool = False) -> dict[str, Any]:
    command, left_out = tool.input.model_validate(given), _OF_THE_ENGINE.get(tool.name, ())
    try:
        with answering(as_json=as_json):
            if not as_json:
                text = tool.in_words(command) if tool.in_words else tool.handler(command).text
                return {"data": [line for line in text.splitlines() if not line.startswith(left_out)]}
            data = tool.handler(command).data
    except HubError as error:
        return {"error": [error.code, error.message, error.data]}
    return {"data": {name: value for name, value in data.items() if name not in left_out}}


def resource_answers(values: Values) -> Answers:
    """Map the addresses of resources to their contents."""
    found: Answers = {}
    resources = Resources()
    for resource in all_resources():
        for uri in _uris(resource, values):
            match = resources.find(uri)
            assert match and match.resource is resource, uri
            try:
                found[uri] = {"data": match.read()}
            except HubError as error:
                found[uri] = {"error": [error.code, error.message]}
    return found


def _uris(resource: Resource, values: Values) -> list[str]:
    template = UriTemplate.parse(resource.uri_template)
    given = {name: [str(value) for value in values.of(name, _TYPES.get(name, str))] for name in template.variable_names}
    base = {name: found[0] for name, found in given.items() if name not in template.query_variable_names}
    changed = [{**base, name: value} for name, found in given.items() for value in found if value]
    return [template.expand(parameters) for parameters in (base, *changed)]


def completions() -> Answers:
    """Map typed beginnings to the completions of arguments of resources and prompts."""
    offering = [(resource.name, resource.suggest) for resource in all_resources()]
    offering += [(prompt.name, prompt.suggest) for prompt in all_prompts()]
    return {
        f"{name} {argument} {typed!r}": suggest(typed)
        for name, suggestions in offering
        for argument, suggest in suggestions.items()
        for typed in _PREFIXES
    }


APPS = ("sessions_app", "memories", "decisions", "governance", "memoryhub")
# The selectors that are not called, and why
NOT_CALLED = {
    "governance.redaction.selectors.redaction_line": "formats an item, without the store",
    "governance.retention.selectors.lift_hold": "writes",
    "governance.retention.selectors.place_hold": "writes",
    "governance.rollback.selectors.rollback_line": "formats an item, without the store",
    "memories.selectors.conflicts.conflict_text": "formats an item, without the store",
}
_SEARCH = MemorySearch(query="tide gauge")


def selectors() -> dict[str, Callable[..., Any]]:
    """Map the names of all public selectors to them."""
    modules = [
        import_module(module.name)
        for app in APPS
        for module in pkgutil.walk_packages(import_module(app).__path__, f"{app}.")
        if "selectors" in module.name.split(".")
    ]
    return {
        f"{module.__name__}.{name}": selector
        for module in modules
        for name, selector in inspect.getmembers(module, inspect.isfunction)
        if selector.__module__ == module.__name__ and not name.startswith("_")
    }


def selector_answers(values: Values, *, calls: int) -> dict[str, Any]:
    """Map selectors to the results of some calls, at most ``calls`` of each."""
    called = {name: selector for name, selector in selectors().items() if name not in NOT_CALLED}
    return {
        name: [_result(selector, given) for given in _calls(selector, values, calls)]
        for name, selector in called.items()
    }


def _result(selector: Callable[..., Any], given: dict[str, Any]) -> Any:
    try:
        return plain(selector(**given))
    except HubError as error:
        return {"error": [error.code, error.message]}


def _calls(selector: Callable[..., Any], values: Values, most: int) -> Iterator[dict[str, Any]]:
    types = typing.get_type_hints(selector)
    found = {
        name: _arguments(name, types[name], values, entity_of(selector.__name__))
        for name, parameter in inspect.signature(selector).parameters.items()
        if parameter.default is parameter.empty
    }
    calls = list(product(*found.values()))
    chosen = calls if len(calls) <= most else Random(most).sample(calls, most)
    yield from (dict(zip(found, call, strict=True)) for call in chosen)


def _arguments(name: str, annotation: Any, values: Values, entity: str) -> list[Any]:
    known = _BY_NAME.get(name) or _BY_TYPE.get(annotation)
    if known:
        return known()
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation.model_validate(given) for given in spread(inputs(annotation, values, entity), 3 * MOST)]
    if isinstance(annotation, type) and issubclass(annotation, Model):
        return spread(list(annotation._default_manager.order_by("pk")), MOST)
    if typing.get_origin(annotation) in (Sequence, Iterable, list):
        (part,) = typing.get_args(annotation)
        return [_rows_of(part) if inspect.isclass(part) and issubclass(part, Model) else values.of(name, part), []]
    if type(None) in typing.get_args(annotation):
        return [None]
    return values.of("target" if annotation is int and name == "source" else name, annotation)


def _rows_of(model: type[Model]) -> list[Any]:
    return spread(list(model._default_manager.order_by("pk")), 3 * MOST)


def _ranked() -> engine.Ranked:
    return engine.rank(parse_search(_SEARCH))


_BY_TYPE: Mapping[Any, Callable[[], list[Any]]] = {
    QuerySet[Any]: lambda: [Memory.objects.all()],
    Queue: lambda: [queue()],
    Sequence[Due]: lambda: [queue().due],
    engine.Ranked: lambda: [_ranked()],
    Sequence[tuple[int, float]]: lambda: [_ranked().hits[:20]],
    Mapping[int, str]: lambda: [dict(Session.objects.order_by("id").values_list("id", "session_id"))],
}
_BY_NAME: Mapping[str, Callable[[], list[Any]]] = {
    "hold": lambda: list(Hold.objects.order_by("id")),
    "scope_id": lambda: ["", "generated"],
    "condition": lambda: ["m.kind = 'guideline'", "m.priority > 3 OR m.title <> lower(m.title)"],
    "kinds": lambda: ["kind <> 'tool'"],
    "now": lambda: [NOW],
    "parameters": lambda: [()],
    "points": lambda: [0, 5],
    "review": lambda: ["accepted", "proposed"],
    "version": lambda: [1, 2],
}


def plain(value: Any) -> Any:
    """Return a result as JSON has it; what has no order is sorted."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str | datetime | Path):
        return str(value)
    if isinstance(value, Model):
        return {field.attname: plain(getattr(value, field.attname)) for field in value._meta.concrete_fields}
    if isinstance(value, Mapping):
        return sorted([str(key), plain(part)] for key, part in value.items())
    if isinstance(value, QuerySet) and not value.ordered:
        return plain(value.order_by("pk"))
    if isinstance(value, set | frozenset):
        return sorted(map(plain, value))
    if isinstance(value, BaseModel) or not isinstance(value, Iterable):
        return {name: plain(getattr(value, name)) for name in _attributes(value)}
    return [plain(part) for part in value]


def _attributes(value: Any) -> list[str]:
    if isinstance(value, BaseModel):
        return list(type(value).model_fields)
    names = [field.name for field in fields(value)] if is_dataclass(value) else list(vars(value))
    return [name for name in names if not name.startswith("_")]


# Modules whose statements are SQLite's alone, and names in statements to which SQLite's backend has added a part
SQLITE_ONLY = ("memoryhub.core.backends.sqlite.", "memories.search.fts5")
_MARKS = re.compile(r"%s(?:, %s)+")
_OF_SQLITE = ("search_fts", 'temp."differing_', " AS BLOB) FROM ")
_BETWEEN = frozenset(
    {"memoryhub.core.backends.sqlite.base", "memoryhub.core.stores.rows", "memoryhub.core.stores.gathered", __name__}
)


@dataclass
class Sent:
    """A statement as the code has it, with the parameters of one execution."""

    sql: str
    parameters: Sequence[Any]
    # That sent it
    module: str

    @property
    def is_portable(self) -> bool:
        return not (self.module.startswith(SQLITE_ONLY) or any(name in self.sql for name in _OF_SQLITE))


@contextmanager
def recorded() -> Iterator[dict[str, Sent]]:
    """Record the forms of statements that are run in SQLite inside the block: lists of any length are one form."""
    found: dict[str, Sent] = {}

    def recording(method: Callable[..., Any], row_of: Callable[[Any], Any]) -> Callable[..., Any]:
        def run(self: DatabaseWrapper, sql: str, parameters: Any) -> Any:
            form = _MARKS.sub("%s", sql)
            if form not in found or not found[form].is_portable:
                found[form] = Sent(sql, row_of(parameters), _sender())
            return method(self, sql, parameters)

        return run

    with (
        mock.patch.object(DatabaseWrapper, "run", recording(DatabaseWrapper.run, lambda row: row)),
        mock.patch.object(DatabaseWrapper, "_run_many", recording(DatabaseWrapper._run_many, lambda rows: rows[0])),
    ):
        yield found


def _sender() -> str:
    frame = sys._getframe(2)
    while frame.f_back and frame.f_globals["__name__"] in _BETWEEN:
        frame = frame.f_back
    return str(frame.f_globals["__name__"])


def problems(statements: Sequence[Sent]) -> list[str]:
    """Plan statements in the current store, which is in PostgreSQL; return those that it refuses, with its reason."""
    connection: Any = connections[require_current_alias()]
    with mock.patch.object(connection, "attached", connection.settings_dict["SCHEMA"]):
        return [problem for sent in statements if (problem := _problem(connection, sent))]


def _problem(connection: Any, sent: Sent) -> str:
    try:
        with transaction.atomic(using=connection.alias):
            connection.run(f"EXPLAIN {sent.sql}", sent.parameters)
    except DatabaseError as error:
        return f"{sent.module}: {error}: {sent.sql}"
    return ""
