from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from memoryhub.core.secrets.rule import Rule, Span, compiled, escaped


# What was removed: its type, the rule, and its position in the original text.
@dataclass(frozen=True, slots=True)
class Finding:
    type: str
    rule: str
    start: int
    end: int


# A secret: the rule that found it, and its position in bytes.
@dataclass(frozen=True, slots=True)
class Hit:
    rule: Rule
    start: int
    end: int


# A match before its checks: its position, and the part that may be the secret.
@dataclass(frozen=True, slots=True)
class Found:
    data: bytes
    rule: Rule
    start: int
    end: int
    # The end of the text to read.
    limit: int

    @property
    def span(self) -> Span:
        return self.start, self.end

    @property
    def secret(self) -> str:
        return self.data[self.start : self.end].decode(errors="replace")

    @property
    def before(self) -> bytes:
        return self.data[max(0, self.start - 40) : self.start]

    @property
    def after(self) -> bytes:
        return self.data[self.end : min(self.end + 1, self.limit)]


def apart(hits: list[Hit], others: list[Hit]) -> list[Hit]:
    """Return the hits that overlap none of the others; both lists are sorted and without overlaps."""
    free: list[Hit] = []
    place = 0
    for hit in hits:
        while place < len(others) and others[place].end <= hit.start:
            place += 1
        if place == len(others) or hit.end <= others[place].start:
            free.append(hit)
    return free


# A rule, and the length of the keyword that found it.
Candidate = tuple[Rule, int]
Place = tuple[int, tuple[Candidate, ...]]
_MEMORY = 16 << 20
_SEEN = 2048


# The keywords of all rules in one automaton, so the cost does not grow with their number (decision 21).
class Places:
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
        """Yield each position where a keyword starts, with the rules of all keywords that start there."""
        find, rules_of, size = self._pattern.find, self._rules_of, len(data)
        spans = find(data, 0, size)
        while spans:
            start, end = spans[0]
            yield start, rules_of(data[start:end])
            spans = find(data, start + 1, size)

    def _rules(self, word: bytes) -> tuple[Candidate, ...]:
        lowered, found = word.lower(), dict[Rule, int]()
        for size in range(len(word), 0, -1):
            for rule in (*self._exact.get(word[:size], ()), *self._any_case.get(lowered[:size], ())):
                found.setdefault(rule, size)
        return tuple(found.items())
