"""The part of a text that shows why it was found, and where in it the words are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from memories.search.folding import folded_with_places
from memories.search.words import places, spans

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
    words: Sequence[str]

    @property
    def matches(self) -> Spans:
        """Where in ``text`` the words stand, in whatever form: begin and end of each, in characters."""
        return spans(self.text, self.words)


def excerpt(text: str, words: Sequence[str]) -> Excerpt:
    """Return a snippet, which tells where in it the words are."""
    return Excerpt(snippet(text, words), words)


def snippet(text: str, words: Sequence[str]) -> str:
    """Return about 200 characters of ``text`` around where most of ``words`` stand together, on one line."""
    flat = " ".join(text[:_READ].split())
    if len(flat) <= LENGTH:
        return flat
    stems = {word[:_STEM] for word in words}  # a text may hold another form of a word
    plain, places_of = folded_with_places(flat)
    start = _densest(places(plain.lower(), stems)[:_PLACES])
    if places_of:
        start = places_of[min(start, len(places_of) - 1)][0]
    start = flat.find(" ", start - 1) + 1 if start else 0
    cut = flat[start : start + LENGTH].rsplit(" ", 1)[0]
    return f"{'… ' if start else ''}{cut} …"


def _densest(found: list[int]) -> int:
    best, most, end = 0, 0, 0
    for index, place in enumerate(found):
        while end < len(found) and found[end] < place + LENGTH:
            end += 1
        if end - index > most:
            best, most = place, end - index
    return max(0, best - 20)
