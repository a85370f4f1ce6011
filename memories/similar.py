"""Find memories with nearly the same text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from memories.events import MemoryState
from memories.schemas import SimilarMemory
from memories.search.folding import folded
from memories.search.index import has_full_text
from memories.search.text import STOP_WORDS
from memories.search.text_index import text_index
from memoryhub.core.log.quarantine import OUTSIDE
from memoryhub.core.stores import rows

_WORD = re.compile(r"\w{2,40}")
_MOST_CHARACTERS = 20_000

# Share of common words from which two texts are nearly the same
ALIKE = 0.7

# Share from which they may be about the same subject
NEAR = 0.25

_SHOWN = 3
_CANDIDATES = 8
_PAIRS = 2
_LONGEST = 12
# Shorter texts are alike too easily
LEAST_WORDS = 6


def similar_memories(memory_id: int, state: MemoryState) -> list[SimilarMemory]:
    """Return live memories of the current store with nearly the same text, most similar first.

    None are found without a full-text index.
    """
    words = words_of(f"{state.title} {state.content}")
    if len(words) < LEAST_WORDS or not has_full_text():
        return []
    return _alike(words, _candidates(memory_id, rare_pairs(words), by_score=False), ALIKE)


# Ranks all memories with any of the longest words, which takes as long as a search
def near_memories(memory_id: int, state: MemoryState) -> list[SimilarMemory]:
    """Return live memories of the current store that may be about the same subject, most similar first."""
    words = words_of(f"{state.title} {state.content}")
    if not words or not has_full_text():
        return []
    longest = [(word,) for word in _longest(words, _LONGEST)]
    return _alike(words, _candidates(memory_id, longest, by_score=True), NEAR)


def _alike(words: frozenset[str], candidates: list[tuple[Any, ...]], least: float) -> list[SimilarMemory]:
    found = [
        SimilarMemory(id=candidate, title=title, alike=round(share_of(words, words_of(f"{title} {content}")), 2))
        for candidate, title, content in candidates
    ]
    return sorted((memory for memory in found if memory.alike >= least), key=lambda memory: -memory.alike)[:_SHOWN]


def words_of(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(folded(text[:_MOST_CHARACTERS]).lower())) - STOP_WORDS


def rare_pairs(words: frozenset[str]) -> list[tuple[str, str]]:
    """Return pairs of the longest words.

    Long words are mostly rare, and similar texts share nearly all of them: a few pairs find every similar text.
    """
    longest = _longest(words, 2 * _PAIRS)
    return list(zip(longest[::2], longest[1::2], strict=False))


def share_of(first: frozenset[str], second: frozenset[str]) -> float:
    """Return the share of the words of both texts that they have in common."""
    return len(first & second) / len(first | second)


def _longest(words: frozenset[str], most: int) -> list[str]:
    return sorted(words, key=lambda word: (-len(word), word))[:most]


def _candidates(memory_id: int, groups: Sequence[Sequence[str]], *, by_score: bool) -> list[tuple[Any, ...]]:
    found, parameters = text_index.with_any(groups, by_score=by_score, most=_CANDIDATES)
    return rows.fetch(
        f"SELECT m.id, m.title, m.content FROM ({found}) f JOIN memories_memory m ON m.id = f.id "
        f"WHERE m.deleted_at IS NULL AND m.id <> %s AND m.id {OUTSIDE}",
        [*parameters, memory_id],
    )
