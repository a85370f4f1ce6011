"""A project's own rules, and what is no secret there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import re2

from memoryhub.core.secrets.found import Hit
from memoryhub.core.secrets.rule import Form, Pattern, Rule, compiled

OWN = "own:"
"""What the id of a project's own rule begins with in findings."""
_WINDOW = 8192
_LONGEST = 4096
"""A match of a project's own rule is at most so long; so no pattern can make the search read a text again and again."""


@dataclass(frozen=True, slots=True)
class OwnRule:
    """What a project says of one of its rules."""

    id: str
    pattern: str
    type: str = "secret"
    keywords: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class OwnRules:
    """A project's own rules, compiled; equal only to itself."""

    rules: tuple[Rule, ...] = ()
    texts: frozenset[str] = frozenset()
    patterns: tuple[Pattern, ...] = ()

    def allows(self, secret: str) -> bool:
        """Say whether what was found is no secret in this project."""
        return secret in self.texts or any(pattern.is_all(secret) for pattern in self.patterns)

    def find(self, data: bytes) -> list[Hit]:
        """Return what the own rules find, in the order of places and apart."""
        found = sorted((hit for rule in self.rules for hit in _hits(rule, data)), key=_place)
        hits: list[Hit] = []
        for hit in found:
            if not hits or hit.start >= hits[-1].end:
                hits.append(hit)
        return hits


NO_RULES = OwnRules()


def compile_rules(rules: Iterable[OwnRule], allow: Iterable[str]) -> OwnRules:
    """Return a project's rules and allow-list, ready to use.

    Args:
        rules: each has a pattern for RE2, and may have keywords of which one must be in a text for it to be tried.
        allow: exact texts, and patterns between slashes (``/test_[a-z]+/``) that match a whole secret.

    Raises:
        ValueError: a pattern is not one, or matches the empty text.
    """
    patterns = {text: pattern_of(text) for text in allow}
    return OwnRules(
        tuple(_rule(rule) for rule in rules),
        frozenset(text for text, pattern in patterns.items() if pattern is None),
        tuple(checked_pattern(pattern) for pattern in patterns.values() if pattern is not None),
    )


def pattern_of(allowed: str) -> str | None:
    """Return the pattern that stands between slashes, or None for an exact text."""
    return allowed[1:-1] if len(allowed) > 2 and allowed.startswith("/") and allowed.endswith("/") else None


def checked_pattern(pattern: str) -> Pattern:
    """Return a person's pattern, compiled.

    Raises:
        ValueError: RE2 does not take it, or it matches the empty text.
    """
    try:
        found = compiled(pattern.encode())
    except re2.error as error:
        raise ValueError(f"{pattern[:80]!r} is not a pattern that RE2 takes: {_reason(error)}") from None
    if found.find(b"", 0, 0) is not None:
        raise ValueError(f"{pattern[:80]!r} matches the empty text; let it ask for at least one character")
    return found


def _reason(error: Exception) -> str:
    reason = error.args[0]
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)


def _rule(own: OwnRule) -> Rule:
    checked_pattern(own.pattern)
    keywords = tuple(word.lower().encode() for word in own.keywords)
    return Rule(f"{OWN}{own.id}", own.type, Form.ALL, keywords, pattern=own.pattern.encode())


def _hits(rule: Rule, data: bytes) -> Iterator[Hit]:
    if rule.keywords:
        lowered = data.lower()
        if not any(word in lowered for word in rule.keywords):
            return
    pattern, position, size = compiled(rule.pattern), 0, len(data)
    while position < size:
        stop = min(size, position + _WINDOW)
        spans = pattern.find(data, position, stop)
        if spans is None:
            position = stop if stop == size else stop - _LONGEST
            continue
        start, end = _secret(spans)
        if end > start:
            yield Hit(rule, start, end)
        position = max(spans[0][1], position + 1)


def _secret(spans: list[tuple[int, int]]) -> tuple[int, int]:
    """Return the first group that matched, or the whole match where there is none."""
    return next((span for span in spans[1:] if span[0] >= 0), spans[0])


def _place(hit: Hit) -> tuple[int, int]:
    return hit.start, -hit.end
