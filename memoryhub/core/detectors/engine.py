"""Find the secrets of a text: keyword by keyword, left to right, the first match at a place wins."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

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
        self._exact: dict[str, list[Rule]] = defaultdict(list)
        self._any_case: dict[str, list[Rule]] = defaultdict(list)
        for rule in self.rules:
            table = self._any_case if rule.any_case else self._exact
            for keyword in rule.keywords:
                table[keyword].append(rule)

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
        places: list[tuple[int, list[Rule]]] = []
        for haystack, table in ((text, self._exact), (_lower(text), self._any_case)):
            for keyword, rules in table.items():
                if keyword in haystack:
                    places += [(position, rules) for position in _occurrences(haystack, keyword)]
        places.sort(key=lambda place: place[0])
        return places


def _lower(text: str) -> str:
    """Return the text in lower case, of the same length, so that places agree: only one character grows."""
    return text.replace("\u0130", "I").lower()


def _occurrences(haystack: str, keyword: str) -> Iterator[int]:
    position = haystack.find(keyword)
    while position >= 0:
        yield position
        position = haystack.find(keyword, position + 1)


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
