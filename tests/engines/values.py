"""Values for arguments, by their names and types: ids and names are those of the current store."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from enum import Enum
from functools import cached_property
from itertools import product
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, JsonValue, ValidationError

from memories.models import Memory
from memoryhub.core import clock
from memoryhub.core.events.projection import read_models
from memoryhub.core.kinds.builtin import KINDS
from memoryhub.core.models import RawEvent, StoreModel
from memoryhub.core.stores import rows
from memoryhub.core.stores.store import current_store
from sessions_app.selectors import org_of_project

T = TypeVar("T")
Inputs = list[dict[str, Any]]

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


NOW = datetime(2027, 1, 1, tzinfo=UTC)
