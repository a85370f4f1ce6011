"""One form of what is written in several: accents apart or built in, full-width letters, ligatures, half-width kana.

Index and question are both folded, so that each form finds every other; what is shown stays as it was written.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache

_UNCOUNTED = re.compile("[\u0300-\u036f\u00ad]+")
"""Accents that no letter has built in, and soft hyphens: nothing is found or missed by them."""
_PLAIN_RUN = re.compile("[\x00-\x7f\u3041-\u3096\u30a1-\u30fa\u4e00-\u9fff\uac00-\ud7a3]{2,}")
"""Signs of one form that join none before them: the quick way through most of a text."""
_JOINING = re.compile("[\u1160-\u11ff\uff9e\uff9f\uffa0-\uffdc]")
"""Signs that are no marks and become one with the sign before them all the same: of Korean, and the kana's voicing."""

Places = list[tuple[int, int]]
"""Of each sign of a folded text, where in the text what it stands for begins and ends."""


def folded(text: str) -> str:
    """Return a text in the form that is compared (NFKC), without accents that no letter has built in."""
    if text.isascii():
        return text
    return _UNCOUNTED.sub("", unicodedata.normalize("NFKC", text))


def folded_with_places(text: str) -> tuple[str, Places | None]:
    """Return a text folded, and where each of its signs stands in the text; None where they stand where they stood."""
    if folded(text) == text:
        return text, None
    parts, places = [], Places()
    for start, end in _pieces(text):
        part = text[start:end]
        if part.isascii() or (end - start > 1 and _PLAIN_RUN.fullmatch(part)):
            places += [(place, place + 1) for place in range(start, end)]
        else:
            part = folded(part)
            places += [(start, end)] * len(part)
        parts.append(part)
    return "".join(parts), places


def _pieces(text: str) -> Iterator[tuple[int, int]]:
    """Yield where pieces begin and end, each to be folded by itself: plain runs, and signs with what joins them."""
    start = 0
    while start < len(text):
        run = _PLAIN_RUN.match(text, start)
        end = run.end() - 1 if run else start + 1  # a run's last sign may be joined by what follows
        while not run and end < len(text) and _joins(text[end]):
            end += 1
        yield start, end
        start = end


@lru_cache(maxsize=4096)
def _joins(sign: str) -> bool:
    return unicodedata.category(sign).startswith("M") or bool(_JOINING.match(sign))
