"""Sanitise text before it is stored: remove private blocks, mask secrets, replace characters that no database stores.

Everything that is appended to a log passes through here. Sanitising twice changes nothing. The custom rules of a store
come from a function registered below; without it only the rule pack applies. Without a store, tags have no digits.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import date
from enum import Enum
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

from memoryhub.core.secrets.rule import SecretFinding

if TYPE_CHECKING:
    from pydantic import BaseModel

    from memoryhub.core.secrets.catalogue import CustomRules
    from memoryhub.core.secrets.cleaning import Context, Known


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


__all__ = ["custom_rules_from", "known_from", "sanitize", "sanitize_text", "use_rules"]

# Results for texts up to this length (keys, tags, ids, kinds) are cached, because they repeat.
_CACHED_LENGTH = 64
_REPLACEMENT = "\ufffd"
# Fields of an event that name its session and turn. They stay as they are where its texts give one as a token.
_NAMES = "session_id", "turn_id", "conversation_id"

_rule_sources: list[Callable[[], CustomRules]] = []
_known_sources: list[tuple[Callable[[], Known], Callable[[Mapping[str, str]], None]]] = []
_chosen: ContextVar[CustomRules | None] = ContextVar("chosen_secret_rules", default=None)


def custom_rules_from(source: Callable[[], CustomRules]) -> Callable[[], CustomRules]:
    """Register the function that returns the current store's custom rules; it is called for every value."""
    _rule_sources[:] = [source]
    return source


def known_from(source: Callable[[], Known], remember: Callable[[Mapping[str, str]], None]) -> None:
    """Register the function that returns the secrets that the current store has seen, and the one that adds some."""
    _known_sources[:] = [(source, remember)]


@contextmanager
def use_rules(rules: CustomRules) -> Iterator[None]:
    """Sanitise with other rules than the current store's, to try them or before they are saved."""
    token = _chosen.set(rules)
    try:
        yield
    finally:
        _chosen.reset(token)


def sanitize_text(text: str) -> tuple[str, list[SecretFinding]]:
    clean, findings = _cleaned(text, _context())
    _remember(_values(text, findings))
    return clean, findings


def sanitize(value: Any, shape: Shape = TEXT, *, by_pack_only: bool = False) -> tuple[Any, list[SecretFinding]]:
    """Return a sanitised copy of a JSON value, keys included, and the findings, with positions in their string.

    A secret found in one string is masked in all of them. ``by_pack_only``: without the custom rules and the secrets
    that the store has seen, but with its allowlist.
    """
    context, names = _context(), _names(value)
    context = _by_pack_only(context) if by_pack_only else context
    walk = _PayloadWalk(context, names)
    clean = walk.of(value, "", shape)
    values = {value_text: kind for value_text, kind in walk.values.items() if value_text not in names}
    if values:
        _remember(values)
        walk = _PayloadWalk(_knowing(context, values), names)
        clean = walk.of(value, "", shape)
    return clean, walk.findings


def _names(value: Any) -> frozenset[str]:
    names = [value.get(name) for name in _NAMES] if isinstance(value, dict) else []
    return frozenset(name for name in names if isinstance(name, str))


def _context() -> Context:
    from memoryhub.core.secrets.catalogue import NO_RULES
    from memoryhub.core.secrets.cleaning import NOTHING_KNOWN, Context, current_tag_key

    rules = _chosen.get()
    if rules is None:
        rules = _rule_sources[0]() if _rule_sources else NO_RULES
    secrets = _known_sources[0][0]() if _known_sources else NOTHING_KNOWN
    return Context(current_tag_key(), rules, secrets)


def _by_pack_only(context: Context) -> Context:
    from memoryhub.core.secrets.cleaning import NOTHING_KNOWN

    return context._replace(custom=replace(context.custom, rules=(), personal=None), known=NOTHING_KNOWN)


def _knowing(context: Context, values: dict[str, str]) -> Context:
    from memoryhub.core.secrets.cleaning import Known

    secrets = context.known
    return context._replace(known=Known(values, secrets.digests, secrets.key))


def _values(text: str, findings: list[SecretFinding]) -> dict[str, str]:
    if not findings:
        return {}
    from memoryhub.core.secrets.catalogue import PERSONAL_PREFIX
    from memoryhub.core.secrets.cleaning import is_repeatable

    text = _storable(text)
    kinds = {
        text[finding.start : finding.end]: finding.type
        for finding in findings
        if not finding.rule.startswith(PERSONAL_PREFIX)
    }
    return {value: kind for value, kind in kinds.items() if is_repeatable(value)}


def _remember(values: dict[str, str]) -> None:
    # Trying rules out writes nothing.
    if values and _known_sources and _chosen.get() is None:
        _known_sources[0][1](values)


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
        # A string under a key such as ``password`` is also judged by the key.
        clean, found = _cleaned(text, self._without_known() if text in self._names else self._context)
        self.findings += found
        self.values |= _values(text, found)
        return self._named(clean, len(text), name) if name else clean

    def _without_known(self) -> Context:
        from memoryhub.core.secrets.cleaning import NOTHING_KNOWN

        return self._context._replace(known=NOTHING_KNOWN)

    def _named(self, clean: str, size: int, name: str) -> str:
        from memoryhub.core.secrets.cleaning import tag
        from memoryhub.core.secrets.values import is_secret_name, is_secret_value

        if not is_secret_name(name) or not is_secret_value(name, clean) or self._context.custom.allows(clean):
            return clean
        finding = SecretFinding("secret", "named-secret", 0, size)
        self.findings.append(finding)
        self.values |= _values(clean, [finding])
        return tag("secret", clean, self._context.key)

    def _object(self, value: dict[Any, Any], shape: Shape) -> dict[Any, Any]:
        clean: dict[Any, Any] = {}
        for key, item in value.items():
            clean_key = _unused(self._key(key, shape), clean)
            clean[clean_key] = self.of(item, clean_key if isinstance(key, str) else "", shape.at(key))
        return clean

    def _key(self, key: Any, shape: Shape) -> Any:
        return self._string(key, "") if isinstance(key, str) and shape.key(key) is Leaf.TEXT else key


def _unused(key: Any, keys: dict[Any, Any]) -> Any:
    # Two different keys can become equal; number them so that no value is lost.
    number, unique = 2, key
    while unique in keys:
        unique, number = f"{key} {number}", number + 1
    return unique
