"""Why a hit ranks where it does, in a few words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from memories.search.words import words_in

_MOST_WORDS = 6
_LEAST_TOLD = 0.05


def why(title: str, body: str, words: Sequence[str], factors: Mapping[str, float]) -> str:
    """Return the words that a hit has, and what else raised or lowered its score: ``coffee, machine; session ×1.8``."""
    own = words_in(f"{title}\n{body}", words)
    said = ", ".join(own[:_MOST_WORDS]) or "words beside it, or its date"
    more = f" and {len(own) - _MOST_WORDS} more" if len(own) > _MOST_WORDS else ""
    told = [f"{name} ×{factor:.1f}" for name, factor in factors.items() if abs(factor - 1) >= _LEAST_TOLD]
    return "; ".join([said + more, *told])
