"""What a pattern has found, for the checks to judge."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from memoryhub.core.secrets.rule import Rule, Span, compiled, escaped


@dataclass(frozen=True, slots=True)
class Finding:
    """What was taken out: its type, the rule that found it, and its place in the original text."""

    type: str
    rule: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Hit:
    """A secret: the rule that found it and its place in the bytes."""

    rule: Rule
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Found:
    """A match before it is judged: where it stands, and which part of it may be the secret."""

    data: bytes
    rule: Rule
    start: int
    end: int
    limit: int
    """Where the text that may be read ends."""

    @property
    def span(self) -> Span:
        """The place of what may be the secret."""
        return self.start, self.end

    @property
    def secret(self) -> str:
        """What may be the secret, as text."""
        return self.data[self.start : self.end].decode(errors="replace")

    @property
    def before(self) -> bytes:
        """Up to 40 bytes that stand before it."""
        return self.data[max(0, self.start - 40) : self.start]

    @property
    def after(self) -> bytes:
        """The byte that follows it, or none."""
        return self.data[self.end : min(self.end + 1, self.limit)]


def apart(hits: list[Hit], others: list[Hit]) -> list[Hit]:
    """Return the hits that overlap with none of the others; both lists are in order, and in neither do two overlap."""
    free: list[Hit] = []
    place = 0
    for hit in hits:
        while place < len(others) and others[place].end <= hit.start:
            place += 1
        if place == len(others) or hit.end <= others[place].start:
            free.append(hit)
    return free


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
