"""Memories that say nearly the same: found by their longest words, told by how many words they share."""

from __future__ import annotations

import re
from typing import Any

from memories.events import MemoryState
from memories.schemas import SimilarMemory
from memories.search.folding import folded
from memories.search.index import has_full_text
from memories.search.text import STOP_WORDS
from memoryhub.core.log.quarantine import OUTSIDE
from memoryhub.core.stores import rows

_WORD = re.compile(r"\w{2,40}")
_MOST_CHARACTERS = 20_000

ALIKE = 0.7
"""Two texts that share so much of all their words say nearly the same."""

NEAR = 0.25
"""Two texts that share so much may be about the same: worth a look for who has time for one."""

_TOLD = 3
_CANDIDATES = 8
_PAIRS = 2
_LONGEST = 12
_LEAST_WORDS = 6
"""A text of fewer words is alike too easily."""


def similar_memories(memory_id: int, state: MemoryState) -> list[SimilarMemory]:
    """Return the live memories of the current store that say nearly the same as a new one, the most alike first.

    Long words are rare words, mostly; two texts that are alike share nearly all of theirs. So a few pairs of them
    find whatever is alike, in the time of a look-up. Without FTS5 nothing is found.
    """
    words = _words(f"{state.title} {state.content}")
    if len(words) < _LEAST_WORDS or not has_full_text():
        return []
    longest = _longest(words, 2 * _PAIRS)
    pairs = [f'("{one}" AND "{other}")' for one, other in zip(longest[::2], longest[1::2], strict=False)]
    return _alike(words, _candidates(memory_id, " OR ".join(pairs), "rowid DESC"), ALIKE)


def near_memories(memory_id: int, state: MemoryState) -> list[SimilarMemory]:
    """Return the live memories of the current store that may be about the same as one, the most alike first.

    It ranks all that have any of its longest words, which takes the time of a search. Without FTS5 nothing is found.
    """
    words = _words(f"{state.title} {state.content}")
    if not words or not has_full_text():
        return []
    any_of = " OR ".join(f'"{word}"' for word in _longest(words, _LONGEST))
    return _alike(words, _candidates(memory_id, any_of, "rank"), NEAR)


def _alike(words: frozenset[str], candidates: list[tuple[Any, ...]], least: float) -> list[SimilarMemory]:
    found = [
        SimilarMemory(id=each, title=title, alike=round(_share(words, _words(f"{title} {content}")), 2))
        for each, title, content in candidates
    ]
    return sorted((each for each in found if each.alike >= least), key=lambda each: -each.alike)[:_TOLD]


def _words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(folded(text[:_MOST_CHARACTERS]).lower())) - STOP_WORDS


def _share(first: frozenset[str], second: frozenset[str]) -> float:
    return len(first & second) / len(first | second)


def _longest(words: frozenset[str], most: int) -> list[str]:
    return sorted(words, key=lambda word: (-len(word), word))[:most]


def _candidates(memory_id: int, question: str, order: str) -> list[tuple[Any, ...]]:
    return rows.fetch(
        "SELECT m.id, m.title, m.content FROM (SELECT rowid FROM search_fts WHERE search_fts MATCH %s "
        f"ORDER BY {order} LIMIT %s) f JOIN memories_memory m ON m.id = f.rowid "
        f"WHERE m.deleted_at IS NULL AND m.id <> %s AND m.id {OUTSIDE}",
        [question, _CANDIDATES, memory_id],
    )
