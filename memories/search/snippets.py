"""The part of a text that shows why it was found, and where in it the words are."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from memories.search.words import spans

LENGTH = 200
"""Characters of a snippet."""

_READ = 20_000
_PLACES = 100
_STEM = 5

Spans = list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A snippet as data."""

    text: str
    matches: Spans
    """Where in ``text`` the words stand: begin and end of each, in characters."""


def excerpt(text: str, words: list[str]) -> Excerpt:
    """Return a snippet and where in it the words are, in whatever form."""
    cut = snippet(text, words)
    return Excerpt(cut, spans(cut, words))


def snippet(text: str, words: list[str]) -> str:
    """Return about 200 characters of ``text`` around where most of ``words`` stand together, on one line."""
    flat = " ".join(text[:_READ].split())
    if len(flat) <= LENGTH:
        return flat
    start = _densest(_places(flat.lower(), tuple(words)))
    start = flat.find(" ", start - 1) + 1 if start else 0
    cut = flat[start : start + LENGTH].rsplit(" ", 1)[0]
    return f"{'… ' if start else ''}{cut} …"


def _densest(places: list[int]) -> int:
    best, most, end = 0, 0, 0
    for index, place in enumerate(places):
        while end < len(places) and places[end] < place + LENGTH:
            end += 1
        if end - index > most:
            best, most = place, end - index
    return max(0, best - 20)


def _places(text: str, words: tuple[str, ...]) -> list[int]:
    if not words:
        return []
    found = _pattern(words).finditer(text)
    return [match.start() for match, _ in zip(found, range(_PLACES), strict=False)]


@lru_cache(maxsize=64)
def _pattern(words: tuple[str, ...]) -> re.Pattern[str]:
    """Return a pattern of the words' beginnings, because a text may hold another form of them."""
    stems = sorted({word[:_STEM] for word in words}, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, stems)))
