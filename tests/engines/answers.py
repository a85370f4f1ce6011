"""Values for arguments, and what a hub answers with them: tools, resources, completions, selectors and statements."""

from __future__ import annotations

import inspect
import json
import pkgutil
import re
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum
from functools import cached_property
from importlib import import_module
from itertools import product
from pathlib import Path
from random import Random
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints
from unittest import mock

from django.db import DatabaseError, connections, transaction
from django.db.models import Model, QuerySet
from mcp.shared.uri_template import UriTemplate
from pydantic import BaseModel, JsonValue, ValidationError

from governance.models import Hold
from governance.staleness.selectors import Due, Queue, queue
from memories.models import Memory
from memories.schemas import MemorySearch
from memories.search import engine
from memories.search.parsed_query import parse_search
from memoryhub.core import clock
from memoryhub.core.backends.sqlite.base import DatabaseWrapper
from memoryhub.core.errors import HubError
from memoryhub.core.events.projection import read_models
from memoryhub.core.kinds import KINDS
from memoryhub.core.models import RawEvent, StoreModel
from memoryhub.core.paging import answering
from memoryhub.core.stores import rows
from memoryhub.core.stores.routing import require_current_alias
from memoryhub.core.stores.store import current_store
from memoryhub.core.tools import Resource, Tool, all_prompts, all_resources, all_tools
from memoryhub.mcp.server import Resources
from sessions_app.models import Session
from sessions_app.selectors import org_of_project

T = TypeVar("T")
Inputs = list[dict[str, Any]]

NOW = datetime(2027, 1, 1, tzinfo=UTC)
MOST = 3
# Entries of a page, for lists that are read to the end
PAGE = 4
# Every so many calls have two optional arguments
PAIRS = 5
WORDS = (
    "gauge gauges recorded recording tide tidal storm drill café naïve Straße ÄRGER ǅungla 水位 潮汐表 こんにちは 조수 "
    "Наводнение наводнения read_model snake_case C++ v1.2.3 e-mail 'quoted' \"double\" 100% a\\b it's 😀 👩‍👩‍👧 %s {0} "
    "ａｂｃ ﬁne İstanbul Feed.py feed.py " + "Donaudampfschiff" * 15
).split(" ")
CONTROL = "\x01 tide\x02\x03\x07\x1b[0m\ttab\r\n\x7f\u0085\u2028gauge"
QUESTIONS = (
    "tide",
    "why is the gauge recorded",
    "recorded tide sto*",
    '"storm drill"',
    "kind:guideline tide",
    "nix",
    "Ärger Straße 水位",
    "100% a\\b 'quoted' _",
    "😀",
    "",
)

# The arguments of which the store has names
_NAMES = {
    "actor": "SELECT DISTINCT actor FROM raw_events ORDER BY 1",
    "author": "SELECT DISTINCT author FROM memories_memory ORDER BY 1",
    "category": "SELECT DISTINCT type FROM memories_memory UNION SELECT category FROM memories_tag ORDER BY 1",
    "event_types": "SELECT DISTINCT event_type FROM raw_events ORDER BY 1",
    "commits": "SELECT sha FROM sessions_app_commit ORDER BY id",
    "file": "SELECT DISTINCT path FROM decisions_commitfile ORDER BY 1",
    "name": "SELECT title FROM memories_memory WHERE kind <> 'observation' AND deleted_at IS NULL ORDER BY id",
    "phase": "SELECT DISTINCT phase FROM decisions_decision WHERE phase <> '' ORDER BY 1",
    "session_id": "SELECT session_id FROM sessions_app_session ORDER BY id",
    "source": "SELECT DISTINCT source FROM raw_events ORDER BY 1",
    "stream": "SELECT DISTINCT stream_id FROM raw_events ORDER BY 1",
    "tags": "SELECT DISTINCT tag FROM memories_memorytag ORDER BY 1",
    "topic": "SELECT DISTINCT topic FROM decisions_decision WHERE topic <> '' ORDER BY 1",
    "turn_id": "SELECT turn_id FROM sessions_app_turn ORDER BY id",
    "type": "SELECT DISTINCT type FROM memories_memory UNION SELECT DISTINCT event_type FROM raw_events ORDER BY 1",
}
_NAMES |= {"file_path": _NAMES["file"], "path": _NAMES["file"], "prefix": _NAMES["tags"], "title": _NAMES["name"]}
_NAMES |= {"sha": _NAMES["commits"], "stream_id": _NAMES["stream"], "memory_type": _NAMES["category"]}
_PLACES: dict[str, Callable[[], list[str | None]]] = {
    "org_id": lambda: [org_of_project(), "nowhere"],
    "project_id": lambda: [current_store().name],
    "scope_id": lambda: [current_store().name, org_of_project()],
}
_QUESTIONS = frozenset({"query", "search", "typed", "text"})
_ID_OF = {"run_id": "retentionrun", "decision_ids": "decision"}
_ENTITIES = {"context": "contextpack", "entry": "guideline", "tag": "memory"}
_ANY = frozenset({"id", "ids", "entity_id", "target", "start", "end"})
# Instead of an id
_INSTEAD = frozenset({"name", "title", "topic", "file_path"})
_POSITIONS = frozenset({"as_of", "up_to"})


class Values:
    """Values for the arguments of tools, selectors, resources and completions."""

    @cached_property
    def ids(self) -> dict[str, list[int]]:
        """Map the read models, and the kinds of memories, to ids of their rows."""
        found = {model._meta.model_name or "": model._default_manager.all() for model in _with_ids()}
        found |= {kind: Memory.objects.live().filter(kind=kind) for kind in KINDS}
        return {name: list(rows.order_by("pk").values_list("pk", flat=True)) for name, rows in found.items()}

    @cached_property
    def any_ids(self) -> list[int]:
        """Ids of everything, of erased events, and one that nothing has."""
        return sorted({entity for ids in self.ids.values() for entity in spread(ids, 2)} | {*self.few_ids})

    @cached_property
    def few_ids(self) -> list[int]:
        erased = RawEvent.objects.filter(payload_json__isnull=True).order_by("position")
        return [*spread(list(erased.values_list("position", flat=True)), 2), self.ids["decision"][0], 10**9]

    @cached_property
    def positions(self) -> list[int]:
        return spread(list(range(1, RawEvent.objects.count() + 1)), MOST)

    @cached_property
    def moments(self) -> list[datetime]:
        found = RawEvent.objects.filter(position__in=self.positions).order_by("position")
        return [clock.from_text(text) for text in found.values_list("occurred_at", flat=True)]

    def of(self, name: str, annotation: Any, *, entity: str = "") -> list[Any]:
        """Return some values for an argument; ``entity`` is what its ids are of, if its name does not tell."""
        if name in _QUESTIONS:
            return list(QUESTIONS)
        found = self._names(name) if name in _NAMES or name in _PLACES else self._numbers(name, entity)
        if found is None or _has_own_values(annotation):
            return self._of_type(name, annotation)
        return [[value] if _is_list(annotation) else value for value in found]

    def _names(self, name: str) -> list[str]:
        if name in _PLACES:
            return [place for place in _PLACES[name]() if place]
        found = [text for (text,) in rows.fetch(_NAMES[name])]
        return spread(found, 2 * MOST if name == "type" else MOST)

    def _numbers(self, name: str, entity: str) -> list[int] | None:
        """Return ids or positions; None for an argument that takes neither."""
        if name in _ANY:
            return [*spread(self.ids.get(entity, []), 2 * MOST), *(self.few_ids if entity else self.any_ids)]
        if name == "since" and entity == "contextpack":
            return self.ids[entity]
        named = _ID_OF.get(name, name.removesuffix("_ids").removesuffix("_id"))
        if named != name:
            return spread(self.ids.get(named, []), MOST)
        return self.positions if name in _POSITIONS else None

    def _of_type(self, name: str, annotation: Any) -> list[Any]:
        origin, arguments = get_origin(annotation), get_args(annotation)
        if origin is Annotated:
            return self._of_type(name, arguments[0])
        if origin in (Union, types.UnionType):
            return [value for part in arguments if part is not type(None) for value in self._of_type(name, part)]
        if origin is Literal:
            return list(arguments)
        if origin in (list, Sequence):
            return [[value] for value in self.of(name, arguments[0])]
        if isinstance(annotation, type) and issubclass(annotation, Enum):
            return list(annotation)
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            return inputs(annotation, self)[:MOST]
        if annotation is datetime:
            return self.moments
        return _PLAIN.get(annotation, [])


_PLAIN: dict[Any, list[Any]] = {
    bool: [True, False],
    float: [0.5, 0.0],
    int: [PAGE, 60, 300],
    str: ["tide", "Straße 水位 😀"],
    JsonValue: [{"gauge": [1, 2.5, None, "水位"]}],
}


def entity_of(tool: str) -> str:
    """Return the read model that the ids of a tool are of, by its name."""
    words = [_ENTITIES.get(word, word) for word in tool.split("_")]
    known = {*KINDS, *(model._meta.model_name for model in _with_ids())}
    return next((word for word in reversed(words) if word in known), "")


def _with_ids() -> list[type[StoreModel]]:
    return [model for model in read_models() if model._meta.pk.attname == "id"]  # type: ignore[misc]


def arguments(model: type[BaseModel], values: Values, entity: str = "") -> dict[str, list[Any]]:
    """Map the arguments of a command to values."""
    fields = model.model_fields
    names = {name: "target" if name == "source" and "target" in fields else name for name in fields}
    return {name: values.of(names[name], field.annotation, entity=entity) for name, field in fields.items()}


def inputs(model: type[BaseModel], values: Values, entity: str = "") -> Inputs:
    """Return valid inputs of a command: the required arguments alone, then each other argument in turn."""
    found = arguments(model, values, entity)
    required = [name for name, field in model.model_fields.items() if field.is_required()]
    bases = [dict(zip(required, given, strict=True)) for given in product(*(found[name][:3] for name in required))]
    base = next((given for given in bases if is_valid(model, given)), {})
    # What is got by id or by name; of lists, an id is a filter
    which = {name: found[name][0] for name in ("id", "ids") if found.get(name) and (name == "ids" or entity in KINDS)}
    others = [{name: value} for name, given in found.items() if name != "cursor" for value in given]
    pairs = [{**one, **other} for one, other in zip(others, others[MOST:], strict=False)][::PAIRS]
    given = [{**base, **({} if _INSTEAD & set(other) else which), **other} for other in ({}, *others, *pairs)]
    return [one for number, one in enumerate(given) if one not in given[:number] and is_valid(model, one)]


def is_valid(model: type[BaseModel], given: dict[str, Any]) -> bool:
    try:
        model.model_validate(given)
    except ValidationError:
        return False
    return True


def _has_own_values(annotation: Any) -> bool:
    return any(isinstance(part, type) and issubclass(part, BaseModel | Enum) for part in _parts(annotation))


def _is_list(annotation: Any) -> bool:
    parts = {get_origin(part) for part in _parts(annotation)}
    return bool(parts & {list, Sequence, set, tuple})


def _parts(annotation: Any) -> Iterator[Any]:
    yield annotation
    if get_origin(annotation) in (Annotated, Union, types.UnionType):
        yield from (part for argument in get_args(annotation) for part in _parts(argument))


def spread(values: Sequence[T], most: int) -> list[T]:
    """Return at most so many values, the first and the last among them."""
    if len(values) <= most:
        return list(values)
    return [values[number * (len(values) - 1) // max(most - 1, 1)] for number in range(most)]


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
_READ_BY_PREVIEWS = (
    *("cancelled_positions", "changed_since", "clean_versions", "deletion_histories", "entries_at_end", "events_of"),
    *("ids_of", "name_of", "review_histories", "rivals", "unchanged", "value_histories", "values_of"),
)
# The selectors that are not called, and why
NOT_CALLED = {
    "memories.selectors.versions.conflict_side": "takes a conflict; show calls it",
    "memories.selectors.memories.page_by_change": "takes a query set; the lists of memories and of reviews call it",
    "memories.selectors.search.with_marks": "takes a ranking of the engine; search calls it",
    "sessions_app.selectors.is_readable": "takes a folder; caller_tree calls it",
    "memories.validity.selectors.marks_apart": "marks_of calls it",
    "memories.validity.selectors.joined_marks": "takes what marks_apart returns; marks_of calls it",
    "memories.selectors.search.without_hidden": "takes a ranking of the engine; search calls it",
    "governance.redaction.selectors.find_places": "takes a callback; previews of redactions are compared as answers",
    "governance.redaction.selectors.places_of": "takes what find_places returns",
    "governance.redaction.selectors.redaction_line": "formats an item, without the store",
    "governance.redaction.selectors.selected_events": "takes a selection of whole events",
    "governance.redaction.selectors.texts_of": "takes an event, without the store",
    "governance.redaction.selectors.whole_places": "takes events, without the store",
    "governance.staleness.selectors.queue": "list_stale calls it",
    "governance.rollback.selectors.rollback_line": "formats an item, without the store",
    "memories.selectors.versions.conflict_text": "formats an item, without the store",
    "sessions_app.selectors.read_events": "takes a query set; lessons, notes and the pack of a session call it",
    **dict.fromkeys(
        map("governance.rollback.selectors.{}".format, _READ_BY_PREVIEWS), "previews are compared as answers"
    ),
}
_SEARCH = MemorySearch(query="tide gauge")


def selectors() -> dict[str, Callable[..., Any]]:
    """Map the names of all public selectors to them."""
    modules = [
        import_module(module.name)
        for app in APPS
        for module in pkgutil.walk_packages(import_module(app).__path__, f"{app}.")
        if "selectors" in module.name.split(".") or module.name == "decisions.edges"
    ]
    return {
        f"{module.__name__}.{name}": selector
        for module in modules
        for name, selector in inspect.getmembers(module, _is_selector)
        if selector.__module__ == module.__name__ and not name.startswith("_")
    }


def _is_selector(member: object) -> bool:
    return inspect.isfunction(member) or isinstance(member, rows.InSteps)


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
    hints = get_type_hints(selector)
    found = {
        name: _arguments(name, hints[name], values, entity_of(selector.__name__.removesuffix("s")))
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
    if get_origin(annotation) in (Sequence, Iterable, list):
        (part,) = get_args(annotation)
        return [_rows_of(part) if inspect.isclass(part) and issubclass(part, Model) else values.of(name, part), []]
    if type(None) in get_args(annotation):
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
_OF_SQLITE = ("search_fts", '."differing_')
_BETWEEN = frozenset({"memoryhub.core.backends.sqlite.base", "memoryhub.core.stores.rows", __name__})


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
        mock.patch.object(DatabaseWrapper, "run_many", recording(DatabaseWrapper.run_many, lambda rows: rows[0])),
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
