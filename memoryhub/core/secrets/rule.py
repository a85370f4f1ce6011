"""What a rule is: where to search, what to match, and which part of the match is the secret."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
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
    return b"|".join(pattern for word in words for pattern in _spellings(word))


def _spellings(word: str) -> Iterator[bytes]:
    yield escaped(word.encode())
    if not word.isascii():
        yield json.dumps(word)[1:-1].encode().replace(b"\\", rb"\\{1,2}")


# How a rule is matched around its keyword.
class Form(StrEnum):
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

    The secret is the last group that matched, or the whole match without groups. ``checks`` are names of functions in
    ``checks.py``, which can reject the match or move its ends.
    """

    id: str
    type: str
    form: Form
    # At least one must occur; all are searched at once, which makes the search fast.
    keywords: tuple[bytes, ...]
    # Whether the keywords, given in lower case, match in any case.
    any_case: bool = False
    pattern: bytes = b""
    # For ``Form.VALUE``: a pattern for the name from the keyword on; empty if the keyword is enough.
    name: bytes = b""
    # The minimum entropy of the secret, in bits per character.
    entropy: float = 0.0
    checks: tuple[str, ...] = ()
    # Patterns of strings that look like this secret but are not.
    allow: tuple[bytes, ...] = ()
    back: int = 0
    # How many bytes are read from the keyword on.
    reach: int = 512
    # Whether the secret may start inside a word.
    inside: bool = False
    # Characters, besides letters and digits, that the secret may not follow.
    not_after: bytes = b""

    # Whether a value may follow its name after a space alone.
    spaced: bool = field(init=False)

    def __post_init__(self) -> None:
        self.spaced = "named-secret" in self.checks


def _keywords(words: Iterable[str]) -> tuple[bytes, ...]:
    return tuple(dict.fromkeys(spelling.encode() for word in words for spelling in _spelled_keyword(word)))


def _spelled_keyword(word: str) -> Iterator[str]:
    # Other alphabets: bytes have no case beyond ASCII, and JSON may escape the letters.
    if word.isascii():
        yield word
        return
    for case in (word, word.capitalize(), word.upper(), word.replace("api", "API")):
        yield case
        yield json.dumps(case)[1:-1]


def rule_of(data: dict[str, Any]) -> Rule:
    return Rule(
        id=data["id"],
        type=data.get("type", data["id"]),
        form=Form(data.get("form", "at")),
        keywords=_keywords(data["keywords"]),
        any_case=data.get("any_case", False),
        pattern=data.get("pattern", "").encode(),
        name=data.get("name", "").encode(),
        entropy=data.get("entropy", 0.0),
        checks=tuple(data.get("checks", ())),
        allow=tuple(pattern.encode() for pattern in data.get("allow", ())),
        back=data.get("back", 0),
        reach=data.get("reach", 512),
        inside=data.get("inside", False),
        not_after=data.get("not_after", "").encode(),
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
