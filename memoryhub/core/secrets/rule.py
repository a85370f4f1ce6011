"""What a rule is: where to search, what to match, which part of the match is the secret; and where keywords occur."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache, lru_cache, partial
from operator import itemgetter
from typing import Any

import re2

Span = tuple[int, int]
# The span of a group that did not match.
NOWHERE: Span = (-1, -1)

_Anchor = re2._Anchor


_MEMORY = 384 << 10


# A compiled pattern for bytes. Methods return the spans of the match and of each group, or None.
class Pattern:
    __slots__ = ("_match", "size")

    def __init__(self, pattern: bytes, options: re2.Options) -> None:
        program = re2.compile(pattern, options)
        # re2's own module builds objects and generators for each match, which takes three times as long as the
        # search.
        self._match = program._regexp.Match
        # In instructions: the longest search takes so many steps for each byte of a text
        self.size: int = program.programsize

    def at(self, data: bytes, start: int, stop: int) -> list[Span] | None:
        spans: list[Span] = self._match(_Anchor.ANCHOR_START, data, start, stop)
        return spans if spans[0] != NOWHERE else None

    def find(self, data: bytes, start: int, stop: int) -> list[Span] | None:
        """Return the first match that starts at ``start`` or later."""
        spans: list[Span] = self._match(_Anchor.UNANCHORED, data, start, stop)
        return spans if spans[0] != NOWHERE else None

    def fits(self, data: bytes, start: int, stop: int) -> bool:
        """Return whether everything from ``start`` to ``stop`` matches."""
        spans: list[Span] = self._match(_Anchor.ANCHOR_BOTH, data, start, stop)
        return spans[0] != NOWHERE

    def is_in(self, text: str) -> bool:
        data = text.encode()
        return self.find(data, 0, len(data)) is not None

    def is_all(self, text: str) -> bool:
        data = text.encode()
        return self.fits(data, 0, len(data))


def compile_pattern(pattern: bytes, *, memory: int = _MEMORY, longest: bool = False) -> Pattern:
    """Compile an RE2 pattern that reads each byte as a character; ``memory`` limits its automata in bytes."""
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.log_errors = False
    options.longest_match = longest
    options.max_mem = memory
    return Pattern(pattern, options)


# For the patterns of the rule pack, whose number is fixed
compiled = cache(compile_pattern)


def escaped(word: bytes) -> bytes:
    quoted: bytes = re2.escape(word)
    return quoted


def spelled(*words: str) -> bytes:
    """Return a pattern for the words, also as JSON escapes them, once or twice."""
    patterns = []
    for word in words:
        patterns.append(escaped(word.encode()))
        if not word.isascii():
            patterns.append(json.dumps(word)[1:-1].encode().replace(b"\\", rb"\\{1,2}"))
    return b"|".join(patterns)


# How a rule is matched around its keyword.
class RuleForm(StrEnum):
    # The pattern starts with the keyword.
    AT = "at"
    # The pattern starts at most ``back`` bytes before the keyword and contains it.
    AROUND = "around"
    # The pattern is searched in the whole text, without a keyword; its automaton must be small.
    ALL = "all"
    # The keyword is part of a name, and the pattern matches the whole value assigned to that name.
    VALUE = "value"


@dataclass(slots=True, eq=False)
class Rule:
    """One kind of secret. Patterns are RE2 patterns on bytes, compiled when first used.

    The secret is the last group that matched, or the whole match without groups. ``checks`` are names of functions of
    the engine, which can reject the match or move its ends.
    """

    id: str
    type: str
    form: RuleForm
    # At least one must occur; all are searched at once, which makes the search fast.
    keywords: tuple[bytes, ...]
    # Whether the keywords, given in lower case, match in any case.
    any_case: bool = False
    pattern: bytes = b""
    # For ``RuleForm.VALUE``: a pattern for the name from the keyword on; empty if the keyword is enough.
    name: bytes = b""
    # The minimum entropy of the secret, in bits per character.
    entropy: float = 0.0
    checks: tuple[str, ...] = ()
    back: int = 0
    # How many bytes are read from the keyword on.
    reach: int = 512
    # Whether the secret may start inside a word.
    inside: bool = False
    # Characters, besides letters and digits, that the secret may not follow.
    not_after: bytes = b""
    # Whether any other rule that matches there comes first.
    last: bool = False

    # Whether the name may be the header of a table's column.
    in_tables: bool = field(init=False)
    # Whether a value may follow its name after a space alone.
    spaced: bool = field(init=False)
    # Whether the keyword is a name that no longer word may contain.
    begins_word: bool = field(init=False)

    def __post_init__(self) -> None:
        self.in_tables = "named-secret" in self.checks
        self.begins_word = "named-service" in self.checks
        self.spaced = self.in_tables or self.begins_word


def _keywords(words: Iterable[str]) -> tuple[bytes, ...]:
    spellings: list[str] = []
    for word in words:
        if word.isascii():
            spellings.append(word)
            continue
        # Other alphabets: bytes have no case beyond ASCII, and JSON may escape the letters.
        for case in (word, word.capitalize(), word.upper(), word.replace("api", "API")):
            spellings += (case, json.dumps(case)[1:-1])
    return tuple(dict.fromkeys(map(str.encode, spellings)))


def rule_of(data: dict[str, Any]) -> Rule:
    return Rule(
        data["id"],
        data.get("type", data["id"]),
        RuleForm(data.get("form", "at")),
        _keywords(data["keywords"]),
        checks=tuple(data.get("checks", ())),
        **{name: data[name].encode() for name in ("pattern", "name", "not_after") if name in data},
        **{name: data[name] for name in ("any_case", "entropy", "back", "reach", "inside", "last") if name in data},
    )


LETTERS = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789")
_ESCAPED = frozenset((b"n", b"r", b"t", b"f", b"b", b"0"))
_HEX = frozenset(b"0123456789abcdefABCDEF")


def begins_word(data: bytes, start: int, first: int, not_after: bytes = b"") -> bool:
    """Return whether a word can start at ``start``; bytes before ``first`` do not count."""
    if start <= first:
        return True
    before = data[start - 1]
    if before not in LETTERS and before not in not_after:
        return True
    return _ends_in_escape(data[max(first, start - 6) : start])


def _ends_in_escape(before: bytes) -> bool:
    # The end of an escape such as \n, \u2028 or %3D looks like a letter or digit.
    if before[-2:-1] == b"\\":
        return before[-1:] in _ESCAPED
    if before[-6:-4] == b"\\u":
        return _HEX.issuperset(before[-4:])
    return (before[-4:-2] == b"\\x" or before[-3:-2] == b"%") and _HEX.issuperset(before[-2:])


# What was removed: its type, the rule, and its position in the original text.
@dataclass(frozen=True, slots=True)
class SecretFinding:
    type: str
    rule: str
    start: int
    end: int


# A secret: the rule that found it, and its position in bytes.
@dataclass(frozen=True, slots=True)
class SecretHit:
    rule: Rule
    start: int
    end: int


# A match before its checks: its position, and the part that may be the secret.
@dataclass(frozen=True, slots=True)
class SecretMatch:
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


def apart(hits: list[SecretHit], fixed: list[SecretHit]) -> list[SecretHit]:
    """Return the hits that overlap none of the others; both lists are sorted and without overlaps."""
    free: list[SecretHit] = []
    place = 0
    for hit in hits:
        while place < len(fixed) and fixed[place].end <= hit.start:
            place += 1
        if place == len(fixed) or hit.end <= fixed[place].start:
            free.append(hit)
    return free


# A rule, and the length of the keyword that found it.
Candidate = tuple[Rule, int]
Place = tuple[int, tuple[Candidate, ...]]
_KEYWORDS_MEMORY = 16 << 20
_SEEN = 2048


# The keywords of all rules in two automata, so the cost does not grow with their number (decision 21). The one for
# keywords in any case reads the text in lower case: ``(?i)`` needs so many states that RE2 forgets and rebuilds them.
class KeywordIndex:
    def __init__(self, rules: Iterable[Rule]) -> None:
        self._exact: dict[bytes, list[Rule]] = {}
        self._any_case: dict[bytes, list[Rule]] = {}
        for rule in rules:
            for word in rule.keywords:
                # A word of another alphabet is listed in each case.
                is_any_case = rule.any_case and word.isascii() and b"\\" not in word
                table = self._any_case if is_any_case else self._exact
                table.setdefault(word, []).append(rule)
        self._scanners = [self._scanner(self._exact), self._scanner(self._any_case)]

    @staticmethod
    def _scanner(table: dict[bytes, list[Rule]]) -> tuple[Pattern, Callable[[bytes], tuple[Candidate, ...]]]:
        pattern = b"|".join(map(escaped, table)) or rb"[^\x00-\xff]"
        rules_of = lru_cache(maxsize=_SEEN)(partial(_rules, table))
        return compiled(pattern, memory=_KEYWORDS_MEMORY, longest=True), rules_of

    def of(self, data: bytes) -> list[Place]:
        """Return each position where a keyword starts, with the rules of all keywords that start there."""
        exact, any_case = self._scanners
        places = dict(_scan(data, *exact))
        for start, candidates in _scan(data.lower(), *any_case):
            places[start] = (*places.get(start, ()), *candidates)
        return sorted(places.items(), key=itemgetter(0))


def _scan(data: bytes, pattern: Pattern, rules_of: Callable[[bytes], tuple[Candidate, ...]]) -> Iterator[Place]:
    find = pattern.find
    size = len(data)
    spans = find(data, 0, size)
    while spans:
        start, end = spans[0]
        yield start, rules_of(data[start:end])
        spans = find(data, start + 1, size)


def _rules(table: dict[bytes, list[Rule]], word: bytes) -> tuple[Candidate, ...]:
    sizes = dict[Rule, int]()
    for size in range(len(word), 0, -1):
        for rule in table.get(word[:size], ()):
            sizes.setdefault(rule, size)
    return tuple(sizes.items())
