"""Why a hit ranks where it does, in a few words, and what its source adds to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from memories.search.words import words_in

Notes = Callable[[Sequence[int]], Mapping[int, str]]

_MOST_WORDS = 6
_LEAST_TOLD = 0.05
_notes: dict[str, Notes] = {}


def why(title: str, body: str, words: Sequence[str], factors: Mapping[str, float]) -> str:
    """Return the words that a hit has, and what else raised or lowered its score: ``coffee, machine; session ×1.8``."""
    own = words_in(f"{title}\n{body}", words)
    said = ", ".join(own[:_MOST_WORDS]) or "words beside it, or its date"
    more = f" and {len(own) - _MOST_WORDS} more" if len(own) > _MOST_WORDS else ""
    told = [f"{name} ×{factor:.1f}" for name, factor in factors.items() if abs(factor - 1) >= _LEAST_TOLD]
    return "; ".join([said + more, *told])


def define_notes(source: str, notes: Notes) -> None:
    """Register the notes, by id, on the hits of a source: what replaced one, what supports it."""
    _notes[source] = notes


def notes_of(documents: Mapping[int, Mapping[str, Any]]) -> dict[int, str]:
    """Return the notes on hits, by id; each source is asked once."""
    by_source: dict[str, list[int]] = {}
    for hit_id, document in documents.items():
        by_source.setdefault(document["source"], []).append(hit_id)
    return {
        hit_id: note
        for source, ids in by_source.items()
        if source in _notes
        for hit_id, note in _notes[source](ids).items()
    }
