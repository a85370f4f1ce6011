"""What every public function of the ``selectors`` modules returns, with arguments by their types."""

from __future__ import annotations

import inspect
import pkgutil
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime
from importlib import import_module
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

from django.db.models import Model, QuerySet
from pydantic import BaseModel

from governance.models import Hold
from governance.staleness.stale import Due, Queue, queue
from memories.models import Memory
from memories.schemas import MemorySearch
from memories.search import engine
from memories.search.parsed_query import parse_search
from memoryhub.core.errors import HubError
from sessions_app.models import Session
from tests.engines.values import MOST, NOW, Values, entity_of, inputs, spread

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
