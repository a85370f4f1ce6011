"""Make text fit to be kept: private blocks out, secrets masked, unstorable characters replaced.

Everything that is appended to a log passes here, and nowhere else. Sanitising what is sanitised
already changes nothing. What differs by store comes from the functions that are registered here; without
them, and without a store, tags are plain and only the rule pack counts. The rules are read when the first
text needs them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from memoryhub.core.secrets.found import Finding
from memoryhub.core.secrets.shapes import TEXT, Leaf, Shape

if TYPE_CHECKING:
    from memoryhub.core.secrets.cleaning import Surroundings
    from memoryhub.core.secrets.custom_rules import OwnRules

__all__ = ["Finding", "own_rules_from", "sanitize", "sanitize_text", "tag_key_from", "use_rules"]

_REPEATED = 64
"""Texts up to this length (keys, tags, ids, kinds) come again and again; their answers are remembered."""
_NOT_WRITTEN = "\ufffd"

_key_sources: list[Callable[[], bytes]] = []
_rule_sources: list[Callable[[], OwnRules]] = []
_chosen: ContextVar[OwnRules | None] = ContextVar("chosen_secret_rules", default=None)


def tag_key_from(source: Callable[[], bytes]) -> Callable[[], bytes]:
    """Register what returns the key of the current store's tags; empty where no store is current."""
    _key_sources[:] = [source]
    return source


def own_rules_from(source: Callable[[], OwnRules]) -> Callable[[], OwnRules]:
    """Register what returns the rules and the allow-list of the current store; it is asked for every value."""
    _rule_sources[:] = [source]
    return source


@contextmanager
def use_rules(rules: OwnRules) -> Iterator[None]:
    """Sanitise with other rules than the current store's: those that are being tried, or about to be set."""
    token = _chosen.set(rules)
    try:
        yield
    finally:
        _chosen.reset(token)


def sanitize_text(text: str) -> tuple[str, list[Finding]]:
    """Return the text fit to be kept, and what was taken out of it, in the order of its places.

    What is left is read again until nothing is found in it. A text that is still not clean after
    a dozen rounds was made to be so, and is masked whole.
    """
    return _cleaned(text, _surroundings())


def sanitize(value: Any, shape: Shape = TEXT) -> tuple[Any, list[Finding]]:
    """Return a clean copy of a JSON value, keys included, and what was taken out of its strings.

    A string under a key that names a secret (``{"password": "…"}``) is judged by that name too.
    The places of findings are those in the string that held them.

    Args:
        value: JSON data.
        shape: which of its strings are free text; the others are returned as they are.
    """
    findings: list[Finding] = []
    return _Walk(findings, _surroundings()).of(value, "", shape), findings


def _surroundings() -> Surroundings:
    from memoryhub.core.secrets.cleaning import Surroundings
    from memoryhub.core.secrets.custom_rules import NO_RULES

    rules = _chosen.get()
    if rules is None:
        rules = _rule_sources[0]() if _rule_sources else NO_RULES
    return Surroundings(_key_sources[0]() if _key_sources else b"", rules)


def _cleaned(text: str, around: Surroundings) -> tuple[str, list[Finding]]:
    if len(text) > _REPEATED:
        return _sanitized(text, around)
    clean, findings = _remembered(text, around)
    return clean, list(findings)


@lru_cache(maxsize=1024)
def _remembered(text: str, around: Surroundings) -> tuple[str, tuple[Finding, ...]]:
    clean, findings = _sanitized(text, around)
    return clean, tuple(findings)


def _sanitized(text: str, around: Surroundings) -> tuple[str, list[Finding]]:
    from memoryhub.core.secrets.cleaning import clean_text

    return clean_text(_storable(text), around)


def _storable(text: str) -> str:
    """Return the text with what no store takes replaced: NUL, and surrogates that stand alone."""
    text = text.replace("\x00", _NOT_WRITTEN)
    try:
        text.encode()
    except UnicodeEncodeError:
        return "".join(_NOT_WRITTEN if "\ud800" <= c <= "\udfff" else c for c in text)
    return text


class _Walk:
    """One pass through a JSON value."""

    def __init__(self, findings: list[Finding], around: Surroundings) -> None:
        self._findings = findings
        self._around = around

    def of(self, value: Any, name: str, shape: Shape) -> Any:
        """Return a clean copy of a value that stands under a name."""
        if isinstance(value, str):
            return self._string(value, name) if shape.leaf is Leaf.TEXT else value
        if isinstance(value, dict):
            return self._object(value, shape)
        if isinstance(value, list | tuple):
            return [self.of(item, name, shape.at(index)) for index, item in enumerate(value)]
        return value

    def _string(self, text: str, name: str) -> str:
        clean, found = _cleaned(text, self._around)
        self._findings += found
        return self._named(clean, len(text), name) if name else clean

    def _named(self, clean: str, size: int, name: str) -> str:
        """Return a clean text, or the tag for all of it where the key that it stands under says what it is."""
        from memoryhub.core.secrets.tags import tag
        from memoryhub.core.secrets.value_rules import is_secret_name, is_secret_value

        if not is_secret_name(name) or not is_secret_value(name, clean) or self._around.own.allows(clean):
            return clean
        self._findings.append(Finding("secret", "named-secret", 0, size))
        return tag("secret", clean, self._around.key)

    def _object(self, value: dict[Any, Any], shape: Shape) -> dict[Any, Any]:
        clean: dict[Any, Any] = {}
        for key, item in value.items():
            clean_key = _unused(self._key(key, shape), clean)
            clean[clean_key] = self.of(item, clean_key if isinstance(key, str) else "", shape.at(key))
        return clean

    def _key(self, key: Any, shape: Shape) -> Any:
        return self._string(key, "") if isinstance(key, str) and shape.key(key) is Leaf.TEXT else key


def _unused(key: Any, taken: dict[Any, Any]) -> Any:
    """Number a key that has become equal to another, so that neither value is lost."""
    number, unique = 2, key
    while unique in taken:
        unique, number = f"{key} {number}", number + 1
    return unique
