"""Which parts of a payload are free text, derived from the types of its fields."""

# The sanitiser and redaction read free text only: masking a digest that the hub computed would break what it proves.
# ``sanitize`` imports this module in every hook, so pydantic is imported when the first shape is derived.

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

if TYPE_CHECKING:
    from pydantic import BaseModel


# Marks a type whose values are computed, not written; used through ``schemas.Generated``.
class GeneratedMark:
    pass


# Marks a type whose values may be names that are derived from a text, such as slugs and lower-case tags.
class NameMark:
    pass


class Leaf(Enum):
    # Free text, or a value of unknown type.
    TEXT = "text"
    # Text that may be derived from another one; a redaction of that one must find it.
    NAME = "name"
    # A number, a time, or one of a few words: the type allows no other text.
    FIXED = "fixed"
    # Marked as ``Generated``: computed by the hub or by git, in a checked format.
    GENERATED = "generated"


# The kind of a JSON value, and of the values inside it.
@dataclass(frozen=True, slots=True)
class Shape:
    leaf: Leaf = Leaf.TEXT
    # Of an object with declared fields.
    fields: Mapping[str, Shape] | None = None
    # Of an object with arbitrary keys: the kind of these.
    keys: Leaf = Leaf.TEXT
    # Of a list whose places are declared one by one.
    items: tuple[Shape, ...] = ()
    # Of any other list and of an object with arbitrary keys: the shape of every value.
    values: Shape | None = None

    @property
    def is_text(self) -> bool:
        return self.leaf in (Leaf.TEXT, Leaf.NAME)

    def at(self, key: str | int) -> Shape:
        if self.fields is not None:
            return self.fields.get(str(key), TEXT)
        if isinstance(key, int) and key < len(self.items):
            return self.items[key]
        return self.values or TEXT

    def key(self, key: str) -> Leaf:
        return Leaf.FIXED if self.fields is not None and key in self.fields else self.keys


TEXT = Shape()
NAME = Shape(Leaf.NAME)
FIXED = Shape(Leaf.FIXED)
GENERATED = Shape(Leaf.GENERATED)

_COLLECTIONS = (dict, Mapping, tuple, list, set, frozenset, Sequence)


def payload_shape(schema: type[BaseModel]) -> Shape:
    return _of_schema(schema)


@cache
def _of_schema(schema: Any) -> Shape:
    fields = schema.model_fields.items()
    return Shape(fields={name: _shape(field.annotation, field.metadata) for name, field in fields})


def _shape(annotation: Any, metadata: Sequence[Any] = ()) -> Shape:
    if any(isinstance(mark, GeneratedMark) for mark in metadata):
        return GENERATED
    if any(isinstance(mark, NameMark) for mark in metadata):
        return NAME
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _shape(arguments[0], arguments[1:])
    if origin in (Union, types.UnionType):
        return _union(arguments)
    return _collection(origin, arguments) if origin in _COLLECTIONS else _plain(annotation, origin)


def _collection(origin: Any, arguments: tuple[Any, ...]) -> Shape:
    if origin in (dict, Mapping):
        return Shape(keys=_shape(arguments[0]).leaf, values=_shape(arguments[1]))
    if origin is tuple and arguments[-1] is not ...:
        return Shape(items=tuple(map(_shape, arguments)))
    return Shape(values=_shape(arguments[0]))


def _union(arguments: tuple[Any, ...]) -> Shape:
    shapes = [_shape(argument) for argument in arguments if argument is not types.NoneType]
    if all(shape == shapes[0] for shape in shapes):
        return shapes[0]
    # If any alternative may be text, the value is read as text.
    return GENERATED if all(shape in (FIXED, GENERATED) for shape in shapes) else TEXT


def _plain(annotation: Any, origin: Any) -> Shape:
    from pydantic import BaseModel

    if origin is Literal:
        return FIXED
    if not isinstance(annotation, type):
        return TEXT
    if issubclass(annotation, BaseModel):
        return payload_shape(annotation)
    return FIXED if issubclass(annotation, Enum | int | float | date | types.NoneType) else TEXT
