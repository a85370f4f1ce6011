"""Sanitise text before it is stored: remove private blocks, mask secrets, replace characters that no database stores.

Everything that is appended to a log passes through here. Sanitising twice changes nothing. The custom rules of a store
come from a function registered below; without it only the rule pack applies. Without a store, tags have no digits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from memoryhub.core.secrets.found import Finding
from memoryhub.core.secrets.shapes import TEXT, Leaf, Shape

if TYPE_CHECKING:
    from memoryhub.core.secrets.cleaning import Context
    from memoryhub.core.secrets.custom_rules import CustomRules
    from memoryhub.core.secrets.repeats import Known

__all__ = ["Finding", "custom_rules_from", "known_from", "sanitize", "sanitize_text", "use_rules"]

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


def sanitize_text(text: str) -> tuple[str, list[Finding]]:
    clean, findings = _cleaned(text, _context())
    _remember(_values(text, findings))
    return clean, findings


def sanitize(value: Any, shape: Shape = TEXT, *, by_pack_only: bool = False) -> tuple[Any, list[Finding]]:
    """Return a sanitised copy of a JSON value, keys included, and the findings, with positions in their string.

    A secret found in one string is masked in all of them. ``by_pack_only``: without the custom rules and the secrets
    that the store has seen, but with its allowlist.
    """
    context, names = _context(), _names(value)
    context = _by_pack_only(context) if by_pack_only else context
    walk = _Walk(context, names)
    clean = walk.of(value, "", shape)
    values = {found: kind for found, kind in walk.values.items() if found not in names}
    if values:
        _remember(values)
        walk = _Walk(_knowing(context, values), names)
        clean = walk.of(value, "", shape)
    return clean, walk.findings


def _names(value: Any) -> frozenset[str]:
    found = [value.get(name) for name in _NAMES] if isinstance(value, dict) else []
    return frozenset(name for name in found if isinstance(name, str))


def _context() -> Context:
    from memoryhub.core.secrets.cleaning import Context
    from memoryhub.core.secrets.custom_rules import NO_RULES
    from memoryhub.core.secrets.repeats import NOTHING_KNOWN
    from memoryhub.core.secrets.tag_key import current_tag_key

    rules = _chosen.get()
    if rules is None:
        rules = _rule_sources[0]() if _rule_sources else NO_RULES
    known = _known_sources[0][0]() if _known_sources else NOTHING_KNOWN
    return Context(current_tag_key(), rules, known)


def _by_pack_only(context: Context) -> Context:
    from memoryhub.core.secrets.repeats import NOTHING_KNOWN

    return context._replace(custom=replace(context.custom, rules=(), personal=None), known=NOTHING_KNOWN)


def _knowing(context: Context, values: dict[str, str]) -> Context:
    from memoryhub.core.secrets.repeats import Known

    known = context.known
    return context._replace(known=Known(values, known.digests, known.key))


def _values(text: str, findings: list[Finding]) -> dict[str, str]:
    if not findings:
        return {}
    from memoryhub.core.secrets.personal import PERSONAL_PREFIX
    from memoryhub.core.secrets.repeats import is_repeatable

    text = _storable(text)
    found = {
        text[finding.start : finding.end]: finding.type
        for finding in findings
        if not finding.rule.startswith(PERSONAL_PREFIX)
    }
    return {value: kind for value, kind in found.items() if is_repeatable(value)}


def _remember(values: dict[str, str]) -> None:
    # Trying rules out writes nothing.
    if values and _known_sources and _chosen.get() is None:
        _known_sources[0][1](values)


def _cleaned(text: str, context: Context) -> tuple[str, list[Finding]]:
    if len(text) > _CACHED_LENGTH:
        return _sanitized(text, context)
    clean, findings = _cached(text, context)
    return clean, list(findings)


@lru_cache(maxsize=1024)
def _cached(text: str, context: Context) -> tuple[str, tuple[Finding, ...]]:
    clean, findings = _sanitized(text, context)
    return clean, tuple(findings)


def _sanitized(text: str, context: Context) -> tuple[str, list[Finding]]:
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


class _Walk:
    def __init__(self, context: Context, names: frozenset[str]) -> None:
        self.findings: list[Finding] = []
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
        from memoryhub.core.secrets.repeats import NOTHING_KNOWN

        return self._context._replace(known=NOTHING_KNOWN)

    def _named(self, clean: str, size: int, name: str) -> str:
        from memoryhub.core.secrets.tags import tag
        from memoryhub.core.secrets.value_rules import is_secret_name, is_secret_value

        if not is_secret_name(name) or not is_secret_value(name, clean) or self._context.custom.allows(clean):
            return clean
        finding = Finding("secret", "named-secret", 0, size)
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


def _unused(key: Any, taken: dict[Any, Any]) -> Any:
    # Two different keys can become equal; number them so that no value is lost.
    number, unique = 2, key
    while unique in taken:
        unique, number = f"{key} {number}", number + 1
    return unique
