"""Unicode folding: decomposed accents, full-width letters, ligatures and half-width kana find each other.

Index and question are both folded; texts are shown as they were written.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache

# Combining accents that no composed letter has, and soft hyphens: ignored
_UNCOUNTED = re.compile("[\u0300-\u036f\u00ad]+")
# Characters that folding leaves alone and that never combine: the fast path through most texts
_PLAIN_RUN = re.compile("[\x00-\x7f\u3041-\u3096\u30a1-\u30fa\u4e00-\u9fff\uac00-\ud7a3]{2,}")
# Characters that combine with the one before although they are not marks: Korean letters and the voicing of kana
_JOINING = re.compile("[\u1160-\u11ff\uff9e\uff9f\uffa0-\uffdc]")

# Letters whose plain form is no matter of accents
_LETTERS = str.maketrans(
    {"ß": "ss", "ẞ": "SS", "æ": "ae", "Æ": "AE", "œ": "oe", "Œ": "OE", "ø": "o", "Ø": "O"}
    | {"đ": "d", "Đ": "D", "ł": "l", "Ł": "L", "ı": "i", "ё": "е", "Ё": "Е"}
)

# For each character of a folded text, start and end of its source in the original
Places = list[tuple[int, int]]


def folded(text: str) -> str:
    """Return a text in NFKC, without accents that no composed letter has, and ``ß`` as ``ss``."""
    if text.isascii():
        return text
    return _UNCOUNTED.sub("", unicodedata.normalize("NFKC", text)).translate(_LETTERS)


def folded_with_places(text: str) -> tuple[str, Places | None]:
    """Return a folded text and the source range of each character; None if nothing changed."""
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


# Ranges that can be folded separately: plain runs, and single characters with what combines with them
def _pieces(text: str) -> Iterator[tuple[int, int]]:
    start = 0
    while start < len(text):
        run = _PLAIN_RUN.match(text, start)
        end = run.end() - 1 if run else start + 1  # the last character of a run may combine with the next
        while not run and end < len(text) and _joins(text[end]):
            end += 1
        yield start, end
        start = end


@lru_cache(maxsize=4096)
def _joins(character: str) -> bool:
    return unicodedata.category(character).startswith("M") or bool(_JOINING.match(character))
