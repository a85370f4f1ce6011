"""The token budget: how large an answer is, and how to keep it within what the caller allows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")
_BYTES_PER_TOKEN = 4


def estimate_tokens(text: str) -> int:
    """Estimate the tokens of ``text`` at four UTF-8 bytes each; true tokenizers differ by about a fifth."""
    return -(-len(text.encode("utf-8", "replace")) // _BYTES_PER_TOKEN)


def fit(items: Sequence[T], budget: int | None, render: Callable[[T], str]) -> list[T]:
    """Return the longest head of ``items`` whose rendered text stays within ``budget`` tokens.

    The first item is always kept: an answer that leaves out everything helps no one.
    """
    if budget is None:
        return list(items)
    kept: list[T] = []
    for item in items:
        budget -= estimate_tokens(render(item)) + 1
        if budget < 0 and kept:
            break
        kept.append(item)
    return kept
