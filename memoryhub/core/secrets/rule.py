"""What a rule is: where to look, what to match, and which part of it is the secret."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any

import re2

Span = tuple[int, int]
NOWHERE: Span = (-1, -1)
"""The place of a group that did not match."""

_Anchor = re2._Anchor


_MEMORY = 384 << 10


class Pattern:
    """A compiled pattern that reads bytes. Each method returns the place of the match and of each group, or None.

    The module that RE2 comes with makes objects and generators of each match, which takes three times as long as to
    find it; so what that module calls is called here.
    """

    __slots__ = ("_match",)

    def __init__(self, pattern: bytes, options: re2.Options) -> None:
        self._match = re2.compile(pattern, options)._regexp.Match

    def at(self, data: bytes, start: int, stop: int) -> list[Span] | None:
        """Match what begins at ``start``."""
        spans: list[Span] = self._match(_Anchor.ANCHOR_START, data, start, stop)
        return spans if spans[0] != NOWHERE else None

    def find(self, data: bytes, start: int, stop: int) -> list[Span] | None:
        """Match the first that begins at ``start`` or later."""
        spans: list[Span] = self._match(_Anchor.UNANCHORED, data, start, stop)
        return spans if spans[0] != NOWHERE else None

    def fits(self, data: bytes, start: int, stop: int) -> bool:
        """Say whether all from ``start`` to ``stop`` matches."""
        spans: list[Span] = self._match(_Anchor.ANCHOR_BOTH, data, start, stop)
        return spans[0] != NOWHERE

    def is_in(self, text: str) -> bool:
        """Say whether a text has a match."""
        data = text.encode()
        return self.find(data, 0, len(data)) is not None

    def is_all(self, text: str) -> bool:
        """Say whether a text matches as a whole."""
        data = text.encode()
        return self.fits(data, 0, len(data))


@cache
def compiled(pattern: bytes, *, memory: int = _MEMORY, longest: bool = False) -> Pattern:
    """Return a pattern that reads bytes, each a character.

    Args:
        pattern: as RE2 writes it.
        memory: so many bytes its automata may take; beyond that it is slower, and still right.
        longest: prefer the longest match to the first alternative.

    Raises:
        re2.error: it is not a pattern.
    """
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.log_errors = False
    options.longest_match = longest
    options.max_mem = memory
    return Pattern(pattern, options)


def escaped(word: bytes) -> bytes:
    """Return the pattern of a word."""
    quoted: bytes = re2.escape(word)
    return quoted


class Form(StrEnum):
    """How a rule is read at the place of its keyword."""

    AT = "at"
    """The pattern begins with the keyword."""
    AROUND = "around"
    """The pattern begins at most ``back`` bytes before the keyword, and holds it."""
    ALL = "all"
    """The pattern is searched for in all of the text, without a keyword; it must be one whose automaton is small."""
    VALUE = "value"
    """The keyword is in a name, and the pattern is that of the whole value which the name is given."""


@dataclass(slots=True, eq=False)
class Rule:
    """One kind of secret. All patterns are for RE2, on bytes; the first that is tried compiles it.

    The secret is the last group that matched, or all of the match where there is none. ``checks`` name functions of
    ``checks.py`` that may still say no, or move the ends of the secret.
    """

    id: str
    type: str
    form: Form
    keywords: tuple[bytes, ...]
    """Words of which one must be there; the search for all of them at once is what makes it fast."""
    any_case: bool = False
    """Whether the keywords, in lower case, are found in any case."""
    pattern: bytes = b""
    name: bytes = b""
    """Of a value's rule: what the name must match from the keyword on; empty where the keyword is enough."""
    entropy: float = 0.0
    """The least entropy of the secret, in bits a character."""
    checks: tuple[str, ...] = ()
    allow: tuple[bytes, ...] = ()
    """Patterns of what looks like such a secret and is none."""
    back: int = 0
    reach: int = 512
    """How many bytes from the keyword on are read at most."""
    inside: bool = False
    """Whether it may begin inside a word."""
    not_after: bytes = b""
    """Characters, besides letters and digits, that it may not follow."""

    @property
    def spaced(self) -> bool:
        """Whether the value may stand behind the name with only space between."""
        return "named-secret" in self.checks


def rule_of(data: dict[str, Any]) -> Rule:
    """Return the rule that a line of the pack describes."""
    return Rule(
        id=data["id"],
        type=data.get("type", data["id"]),
        form=Form(data.get("form", "at")),
        keywords=tuple(word.encode() for word in data["keywords"]),
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
    """Say whether a word can begin at ``start``; what stands before ``first`` does not count."""
    if start <= first:
        return True
    before = data[start - 1]
    if before not in LETTERS and before not in not_after:
        return True
    return _ends_in_escape(data[max(first, start - 6) : start])


def _ends_in_escape(before: bytes) -> bool:
    """Say whether text ends as an escape does, with a backslash or ``%``: its end looks like a letter or digit."""
    if before[-2:-1] == b"\\":
        return before[-1:] in _ESCAPED
    if before[-6:-4] == b"\\u":
        return _HEX.issuperset(before[-4:])
    return (before[-4:-2] == b"\\x" or before[-3:-2] == b"%") and _HEX.issuperset(before[-2:])
