from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial

from memoryhub.core.secrets.rule import Pattern, Rule, Span, compiled, escaped


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


# The keywords of all rules in two automata, so the cost does not grow with their number (decision 21). The one for
# keywords in any case reads the text in lower case: ``(?i)`` needs so many states that RE2 forgets and rebuilds them.
class Places:
    def __init__(self, rules: Iterable[Rule]) -> None:
        self._exact: dict[bytes, list[Rule]] = {}
        self._any_case: dict[bytes, list[Rule]] = {}
        for rule in rules:
            for word in rule.keywords:
                # A word of another alphabet is listed in each case.
                table = self._any_case if rule.any_case and word.isascii() and b"\\" not in word else self._exact
                table.setdefault(word, []).append(rule)
        self._scanners = [self._scanner(self._exact), self._scanner(self._any_case)]

    @staticmethod
    def _scanner(table: dict[bytes, list[Rule]]) -> tuple[Pattern, Callable[[bytes], tuple[Candidate, ...]]]:
        pattern = b"|".join(map(escaped, table)) or rb"[^\x00-\xff]"
        rules_of = lru_cache(maxsize=_SEEN)(partial(_rules, table))
        return compiled(pattern, memory=_MEMORY, longest=True), rules_of

    def of(self, data: bytes) -> Iterator[Place]:
        """Yield each position where a keyword starts, with the rules of all keywords that start there."""
        exact, any_case = (
            _scanned(text, *scanner) for text, scanner in zip((data, data.lower()), self._scanners, strict=True)
        )
        return _merged(exact, any_case)


def _scanned(data: bytes, pattern: Pattern, rules_of: Callable[[bytes], tuple[Candidate, ...]]) -> Iterator[Place]:
    find, size = pattern.find, len(data)
    spans = find(data, 0, size)
    while spans:
        start, end = spans[0]
        yield start, rules_of(data[start:end])
        spans = find(data, start + 1, size)


def _merged(first: Iterator[Place], second: Iterator[Place]) -> Iterator[Place]:
    one, other = next(first, None), next(second, None)
    while one and other:
        if one[0] == other[0]:
            yield one[0], (*one[1], *other[1])
            one, other = next(first, None), next(second, None)
        elif one[0] < other[0]:
            yield one
            one = next(first, None)
        else:
            yield other
            other = next(second, None)
    for rest, iterator in ((one, first), (other, second)):
        if rest:
            yield rest
            yield from iterator


def _rules(table: dict[bytes, list[Rule]], word: bytes) -> tuple[Candidate, ...]:
    found = dict[Rule, int]()
    for size in range(len(word), 0, -1):
        for rule in table.get(word[:size], ()):
            found.setdefault(rule, size)
    return tuple(found.items())
