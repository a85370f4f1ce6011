"""Patterns, all of them RE2's: the time that one takes grows with the text and never faster."""

from __future__ import annotations

from functools import cache

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
