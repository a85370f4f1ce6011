"""The part of a text that shows why it was found."""

from __future__ import annotations

import re

LENGTH = 200
"""Characters of a snippet."""

_SPACE = re.compile(r"\s+")


def snippet(text: str, words: list[str]) -> str:
    """Return about 200 characters of ``text`` around where most of ``words`` stand together, on one line."""
    flat = _SPACE.sub(" ", text[:20_000]).strip()
    if len(flat) <= LENGTH:
        return flat
    start = _densest(flat.lower(), [word[:5] for word in words])
    start = flat.find(" ", start - 1) + 1 if start else 0
    cut = flat[start : start + LENGTH].rsplit(" ", 1)[0]
    return f"{'… ' if start else ''}{cut} …"


def _densest(text: str, stems: list[str]) -> int:
    places = sorted(place for stem in stems for place in _places(text, stem))
    best, most = 0, 0
    for index, place in enumerate(places):
        within = sum(1 for other in places[index : index + 20] if other < place + LENGTH)
        if within > most:
            best, most = place, within
    return max(0, best - 20)


def _places(text: str, stem: str) -> list[int]:
    return [match.start() for match in re.finditer(re.escape(stem), text)][:50]
