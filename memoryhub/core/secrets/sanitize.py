"""Sanitise text before it is stored: remove private blocks, mask secrets, replace characters that no database stores.

Everything that is appended to a log passes through here. Sanitising twice changes nothing. The custom rules of a store
come from a function registered below; without it only the rule pack applies. Without a store, tags have no digits.
"""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from enum import Enum
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

from memoryhub.core.secrets.rule import SecretFinding

if TYPE_CHECKING:
    from pydantic import BaseModel

    from memoryhub.core.secrets.cleaning import Context


# The sanitiser and redaction read free text only: masking a digest that the hub computed would break what it proves.
# ``sanitize`` imports this module in every hook, so pydantic is imported when the first shape is derived.


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
    # The fields of an object that declares them.
    fields: Mapping[str, Shape] | None = None
    # The kind of the keys of an object with arbitrary ones.
    keys: Leaf = Leaf.TEXT
    # The shapes of a list whose places are declared one by one.
    items: tuple[Shape, ...] = ()
    # The shape of every value of any other list, and of an object with arbitrary keys.
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
        is_declared = self.fields is not None and key in self.fields
        return Leaf.FIXED if is_declared else self.keys


TEXT = Shape()
NAME = Shape(Leaf.NAME)
FIXED = Shape(Leaf.FIXED)
GENERATED = Shape(Leaf.GENERATED)


def payload_shape(schema: type[BaseModel]) -> Shape:
    return _shape_of_schema(schema)


# Apart, because the checker takes no class of unknown type as an argument of a cached function
@cache
def _shape_of_schema(schema: Any) -> Shape:
    fields = schema.model_fields.items()
    return Shape(fields={name: _shape(field.annotation, field.metadata) for name, field in fields})


def _shape(annotation: Any, metadata: Sequence[Any] = ()) -> Shape:
    if any(isinstance(mark, GeneratedMark) for mark in metadata):
        return GENERATED
    if any(isinstance(mark, NameMark) for mark in metadata):
        return NAME
    origin = get_origin(annotation)
    arguments = get_args(annotation)
    if origin is Annotated:
        return _shape(arguments[0], arguments[1:])
    if origin in (Union, types.UnionType):
        return _union(arguments)
    if origin in (dict, Mapping, tuple, list, set, frozenset, Sequence):
        return _collection(origin, arguments)
    return FIXED if origin is Literal else _class_shape(annotation)


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


def _class_shape(annotation: Any) -> Shape:
    from pydantic import BaseModel

    if not isinstance(annotation, type):
        return TEXT
    if issubclass(annotation, BaseModel):
        return payload_shape(annotation)
    return FIXED if issubclass(annotation, Enum | int | float | date | types.NoneType) else TEXT


# Results for texts up to this length (keys, tags, ids, kinds) are cached, because they repeat.
_CACHED_LENGTH = 64
_REPLACEMENT = "\ufffd"
# Fields of an event that name its session and turn. They stay as they are where its texts give one as a token.
_NAMES = "session_id", "turn_id", "conversation_id"


def sanitize_text(text: str) -> tuple[str, list[SecretFinding]]:
    from memoryhub.core.secrets.context import current_context, remember

    clean, findings = _cleaned(text, current_context())
    remember(_repeatable_values(text, findings))
    return clean, findings


def sanitize(value: Any, shape: Shape = TEXT, *, by_pack_only: bool = False) -> tuple[Any, list[SecretFinding]]:
    """Return a sanitised copy of a JSON value, keys included, and the findings, with positions in their string.

    A secret found in one string is masked in all of them. ``by_pack_only``: without the custom rules and the secrets
    that the store has seen, but with its allowlist.
    """
    from memoryhub.core.secrets.cleaning import NOTHING_KNOWN, Known
    from memoryhub.core.secrets.context import current_context, remember

    context = current_context()
    if by_pack_only:
        context = context._replace(custom=replace(context.custom, rules=(), personal=None), seen=NOTHING_KNOWN)
    names = frozenset[str]()
    if isinstance(value, dict):
        names = frozenset(name for name in map(value.get, _NAMES) if isinstance(name, str))
    walk = _PayloadWalk(context, names)
    clean = walk.of(value, "", shape)
    values = {text: kind for text, kind in walk.values.items() if text not in names}
    if values:
        remember(values)
        secrets = Known(values, context.seen.digests, context.seen.key)
        walk = _PayloadWalk(context._replace(seen=secrets), names)
        clean = walk.of(value, "", shape)
    return clean, walk.findings


def _repeatable_values(text: str, findings: list[SecretFinding]) -> dict[str, str]:
    if not findings:
        return {}
    from memoryhub.core.secrets.catalogue import PERSONAL_PREFIX
    from memoryhub.core.secrets.cleaning import is_repeatable

    text = _storable(text)
    kinds: dict[str, str] = {}
    for finding in findings:
        value = text[finding.start : finding.end]
        if not finding.rule.startswith(PERSONAL_PREFIX) and is_repeatable(value):
            kinds[value] = finding.type
    return kinds


def _cleaned(text: str, context: Context) -> tuple[str, list[SecretFinding]]:
    if len(text) > _CACHED_LENGTH:
        return _sanitized(text, context)
    clean, findings = _cached(text, context)
    return clean, list(findings)


@lru_cache(maxsize=1024)
def _cached(text: str, context: Context) -> tuple[str, tuple[SecretFinding, ...]]:
    clean, findings = _sanitized(text, context)
    return clean, tuple(findings)


def _sanitized(text: str, context: Context) -> tuple[str, list[SecretFinding]]:
    from memoryhub.core.secrets.cleaning import clean_text

    return clean_text(_storable(text), context)


def _storable(text: str) -> str:
    # Databases store neither NUL nor lone surrogates.
    text = text.replace("\x00", _REPLACEMENT)
    try:
        text.encode()
    except UnicodeEncodeError:
        return "".join(_REPLACEMENT if "\ud800" <= c <= "\udfff" else c for c in text)
    return text


class _PayloadWalk:
    def __init__(self, context: Context, names: frozenset[str]) -> None:
        self.findings: list[SecretFinding] = []
        self.values: dict[str, str] = {}
        self._context = context
        self._names = names

    def of(self, value: Any, name: str, shape: Shape) -> Any:
        if isinstance(value, str):
            return self._string(value, name) if shape.is_text else value
        if isinstance(value, dict):
            return self._object(value, shape)
        if isinstance(value, list | tuple):
            return [self.of(item, name, shape.at(index)) for index, item in enumerate(value)]
        return value

    def _string(self, text: str, name: str) -> str:
        from memoryhub.core.secrets.cleaning import NOTHING_KNOWN

        context = self._context
        if text in self._names:
            context = context._replace(seen=NOTHING_KNOWN)
        clean, findings = _cleaned(text, context)
        self.findings += findings
        self.values |= _repeatable_values(text, findings)
        return self._judged_by_name(clean, len(text), name) if name else clean

    # A string under a key such as ``password`` is also judged by the key.
    def _judged_by_name(self, clean: str, size: int, name: str) -> str:
        from memoryhub.core.secrets.cleaning import tag
        from memoryhub.core.secrets.values import is_secret_name, is_secret_value

        if not is_secret_name(name) or not is_secret_value(name, clean) or self._context.custom.allows(clean):
            return clean
        finding = SecretFinding("secret", "named-secret", 0, size)
        self.findings.append(finding)
        self.values |= _repeatable_values(clean, [finding])
        return tag("secret", clean, self._context.key)

    def _object(self, value: dict[Any, Any], shape: Shape) -> dict[Any, Any]:
        clean: dict[Any, Any] = {}
        for key, item in value.items():
            clean_key = _unused(self._key(key, shape), clean)
            clean[clean_key] = self.of(item, clean_key if isinstance(key, str) else "", shape.at(key))
        return clean

    def _key(self, key: Any, shape: Shape) -> Any:
        if isinstance(key, str) and shape.key(key) is Leaf.TEXT:
            return self._string(key, "")
        return key


def _unused(key: Any, keys: dict[Any, Any]) -> Any:
    # Two different keys can become equal; number them so that no value is lost.
    number = 1
    unique = key
    while unique in keys:
        number += 1
        unique = f"{key} {number}"
    return unique
