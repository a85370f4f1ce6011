"""Memories that say nearly the same: found by their longest words, told by how many words they share."""

from __future__ import annotations

import re
from typing import Any

from memories.events import MemoryState
from memories.schemas import SimilarMemory
from memories.search.index import has_full_text
from memories.search.text import STOP_WORDS
from memoryhub.core import rows
from memoryhub.core.quarantine import OUTSIDE

_WORD = re.compile(r"\w{2,40}")
_MOST_CHARACTERS = 20_000

ALIKE = 0.7
"""Two texts that share so much of all their words say nearly the same."""

_TOLD = 3
_CANDIDATES = 8
_PAIRS = 2
_LEAST_WORDS = 6
"""A text of fewer words is alike too easily."""


def similar_memories(memory_id: int, state: MemoryState, *, least: float = ALIKE) -> list[SimilarMemory]:
    """Return the live memories of the current store that say nearly the same as a new one, the most alike first.

    Long words are rare words, mostly; two texts that are alike share nearly all of theirs. So a few pairs of them
    find whatever is alike, in the time of a look-up. Without FTS5 nothing is found.

    Args:
        memory_id: the one that is not to be found itself.
        state: what it says.
        least: the share of all their words that both have.
    """
    words = _words(f"{state.title} {state.content}")
    if len(words) < _LEAST_WORDS or not has_full_text():
        return []
    found = [
        SimilarMemory(id=each, title=title, alike=round(_share(words, _words(f"{title} {content}")), 2))
        for each, title, content in _candidates(memory_id, words)
    ]
    alike = sorted((each for each in found if each.alike >= least), key=lambda each: -each.alike)
    return alike[:_TOLD]


def _words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(text.lower()[:_MOST_CHARACTERS])) - STOP_WORDS


def _share(first: frozenset[str], second: frozenset[str]) -> float:
    return len(first & second) / len(first | second)


def _candidates(memory_id: int, words: frozenset[str]) -> list[tuple[Any, ...]]:
    longest = sorted(words, key=lambda word: (-len(word), word))[: 2 * _PAIRS]
    pairs = [f'("{one}" AND "{other}")' for one, other in zip(longest[::2], longest[1::2], strict=False)]
    return rows.fetch(
        "SELECT m.id, m.title, m.content FROM (SELECT rowid FROM search_fts WHERE search_fts MATCH %s "
        "ORDER BY rowid DESC LIMIT %s) f JOIN memories_memory m ON m.id = f.rowid "
        f"WHERE m.deleted_at IS NULL AND m.id <> %s AND m.id {OUTSIDE}",
        [" OR ".join(pairs), _CANDIDATES, memory_id],
    )
