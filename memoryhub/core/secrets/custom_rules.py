"""A project's custom rules and allowlist."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import re2

from memoryhub.core.secrets.engine import Detector
from memoryhub.core.secrets.found import Hit
from memoryhub.core.secrets.personal import Personal, personal_detector
from memoryhub.core.secrets.rule import Form, Pattern, Rule, compile_pattern

# Prefix of a custom rule's id in findings.
CUSTOM_PREFIX = "own:"
_WINDOW = 8192
# The longest match of a custom rule, so that no pattern can make the search read a text repeatedly.
_LONGEST = 4096
# Instructions of all patterns of a project: a text of 100 kB takes at most a few seconds.
MAX_SIZE = 2_500
# Secrets of one text. A rule that matches more often is too wide, and masks the rest of the text at once.
_MOST_HITS = 10_000

# Anyone can try out rules, so patterns that are not used any more are forgotten.
_compiled = lru_cache(maxsize=1024)(compile_pattern)


# A custom rule as the settings declare it.
@dataclass(frozen=True, slots=True)
class CustomRule:
    id: str
    pattern: str
    type: str = "secret"
    keywords: tuple[str, ...] = ()


# Compiled rules; equal only to themselves, so they can be a cache key.
@dataclass(frozen=True, slots=True, eq=False)
class CustomRules:
    rules: tuple[Rule, ...] = ()
    texts: frozenset[str] = frozenset()
    # Finds the types of personal data that the project masks.
    personal: Detector | None = None
    patterns: tuple[Pattern, ...] = ()

    def allows(self, secret: str) -> bool:
        return secret in self.texts or any(pattern.is_all(secret) for pattern in self.patterns)

    def find(self, data: bytes) -> list[Hit]:
        found = sorted((hit for rule in self.rules for hit in _hits(rule, data)), key=_place)
        hits: list[Hit] = []
        for hit in found:
            if not hits or hit.start >= hits[-1].end:
                hits.append(hit)
            if len(hits) > _MOST_HITS:
                hits[-1] = Hit(hit.rule, hits[-1].start, len(data))
                break
        return hits


NO_RULES = CustomRules()


def compile_rules(rules: Iterable[CustomRule], allow: Iterable[str], personal: Iterable[Personal] = ()) -> CustomRules:
    """Compile a project's rules and allowlist.

    Args:
        rules: each has an RE2 pattern; if it has keywords, one must occur in a text for the pattern to be tried.
        allow: exact texts, and patterns between slashes (``/test_[a-z]+/``) that match a whole secret.
        personal: types of personal data to mask as well.

    Raises:
        ValueError: a pattern is invalid or matches the empty text.
    """
    patterns = {text: pattern_of(text) for text in allow}
    kinds = frozenset(personal)
    return CustomRules(
        tuple(_rule(rule) for rule in rules),
        frozenset(text for text, pattern in patterns.items() if pattern is None),
        personal_detector(kinds) if kinds else None,
        tuple(checked_pattern(pattern) for pattern in patterns.values() if pattern is not None),
    )


def pattern_of(allowed: str) -> str | None:
    return allowed[1:-1] if len(allowed) > 2 and allowed.startswith("/") and allowed.endswith("/") else None


def checked_pattern(pattern: str) -> Pattern:
    try:
        compiled = _compiled(pattern.encode())
    except re2.error as error:
        raise ValueError(f"{pattern[:80]!r} is not a valid RE2 pattern: {_reason(error)}") from None
    if compiled.find(b"", 0, 0) is not None:
        raise ValueError(f"{pattern[:80]!r} matches the empty text; require at least one character")
    return compiled


def size_of(patterns: Iterable[str], allow: Iterable[str]) -> int:
    """Return the number of instructions of a project's patterns, which bounds the time that they take."""
    named = [*patterns, *(pattern for text in allow if (pattern := pattern_of(text)) is not None)]
    return sum(checked_pattern(pattern).size for pattern in named)


def _reason(error: Exception) -> str:
    reason = error.args[0]
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)


def _rule(rule: CustomRule) -> Rule:
    checked_pattern(rule.pattern)
    keywords = tuple(word.lower().encode() for word in rule.keywords)
    return Rule(f"{CUSTOM_PREFIX}{rule.id}", rule.type, Form.ALL, keywords, pattern=rule.pattern.encode())


def _hits(rule: Rule, data: bytes) -> Iterator[Hit]:
    if rule.keywords:
        lowered = data.lower()
        if not any(word in lowered for word in rule.keywords):
            return
    pattern, position, size = _compiled(rule.pattern), 0, len(data)
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
    return next((span for span in spans[1:] if span[0] >= 0), spans[0])


def _place(hit: Hit) -> tuple[int, int]:
    return hit.start, -hit.end
