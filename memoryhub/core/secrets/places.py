"""Find where any of many keywords begins, in one pass over the text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

from .pattern import compiled, escaped
from .rule import Rule

Candidate = tuple[Rule, int]
"""A rule, and how long the keyword is by which it was found."""
Place = tuple[int, tuple[Candidate, ...]]
_MEMORY = 16 << 20
_SEEN = 2048


class Places:
    """The keywords of rules, as one automaton: its cost does not grow with their number."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._exact: dict[bytes, list[Rule]] = {}
        self._any_case: dict[bytes, list[Rule]] = {}
        for rule in rules:
            table = self._any_case if rule.any_case else self._exact
            for word in rule.keywords:
                table.setdefault(word, []).append(rule)
        self._pattern = compiled(self._alternatives(), memory=_MEMORY, longest=True)
        self._rules_of = lru_cache(maxsize=_SEEN)(self._rules)

    def _alternatives(self) -> bytes:
        groups = [*map(escaped, self._exact)]
        if self._any_case:
            groups.append(b"(?i:" + b"|".join(map(escaped, self._any_case)) + b")")
        return b"|".join(groups) or rb"[^\x00-\xff]"

    def of(self, data: bytes) -> Iterator[Place]:
        """Yield each place where a keyword begins, with the rules of all that begin there."""
        find, rules_of, size = self._pattern.find, self._rules_of, len(data)
        spans = find(data, 0, size)
        while spans:
            start, end = spans[0]
            yield start, rules_of(data[start:end])
            spans = find(data, start + 1, size)

    def _rules(self, word: bytes) -> tuple[Candidate, ...]:
        """Return the rules of a word and of all that it begins with, each with the length of its keyword."""
        lowered, found = word.lower(), dict[Rule, int]()
        for size in range(len(word), 0, -1):
            for rule in (*self._exact.get(word[:size], ()), *self._any_case.get(lowered[:size], ())):
                found.setdefault(rule, size)
        return tuple(found.items())
