"""Find the secrets of a text: keyword by keyword, left to right, the first match at a place wins."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from .keywords import Keywords
from .rule import Rule

_ESCAPE_BEFORE = re.compile(r"(?:\\[nrtfb0]|\\u[0-9a-fA-F]{4}|\\x[0-9a-fA-F]{2}|%[0-9a-fA-F]{2})$")


@dataclass(frozen=True, slots=True)
class Hit:
    """A secret: the rule that found it and its place in the text."""

    rule: Rule
    start: int
    end: int


class Detector:
    """A set of rules, with their keywords ready to be searched for."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.rules = tuple(rules)
        self._exact = _Table(rule for rule in self.rules if not rule.any_case)
        self._any_case = _Table(rule for rule in self.rules if rule.any_case)

    def find(self, text: str) -> list[Hit]:
        """Return the secrets in the order of their places; they never overlap."""
        hits: list[Hit] = []
        cursor = 0
        for position, rules in self._places(text):
            if position >= cursor:
                hit = _first_hit(rules, text, position, cursor)
                if hit is not None:
                    hits.append(hit)
                    cursor = hit.end
        return hits

    def _places(self, text: str) -> Sequence[tuple[int, list[Rule]]]:
        """Return every place where a keyword begins, with the rules to try there."""
        places = [*self._exact.places(text), *self._any_case.places(_lower(text))]
        places.sort(key=_position)
        return places


class _Table:
    """The rules by keyword."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        by_keyword: dict[str, list[Rule]] = {}
        for rule in rules:
            for keyword in rule.keywords:
                by_keyword.setdefault(keyword, []).append(rule)
        self._keywords = Keywords(by_keyword)
        self._rules = {
            word: [rule for size in range(1, len(word) + 1) for rule in by_keyword.get(word[:size], ())]
            for word in by_keyword
        }

    def places(self, text: str) -> Iterator[tuple[int, list[Rule]]]:
        """Yield each place where a keyword begins, with the rules of all that begin there."""
        for position, word in self._keywords.places(text):
            yield position, self._rules[word]


def _position(place: tuple[int, list[Rule]]) -> int:
    return place[0]


def _lower(text: str) -> str:
    """Return the text in lower case, of the same length, so that places agree: only one character grows."""
    return text.replace("\u0130", "I").lower()


def _first_hit(rules: list[Rule], text: str, position: int, cursor: int) -> Hit | None:
    """Return the secret of the first rule that finds one here and not before ``cursor``."""
    for rule in rules:
        if not _may_begin(rule, text, position, cursor):
            continue
        match = rule.pattern.match(text, position)
        span = rule.refine(match) if match else None
        if span and cursor <= span[0] < span[1]:
            return Hit(rule, *span)
    return None


def _may_begin(rule: Rule, text: str, position: int, cursor: int) -> bool:
    """Say whether a token can begin here: at a word's start, after an escape or after a secret."""
    if rule.inside_words or position == cursor:
        return True
    before = text[position - 1]
    if not before.isalnum() and before not in rule.not_after:
        return True
    return _ESCAPE_BEFORE.search(text, max(cursor, position - 6), position) is not None
