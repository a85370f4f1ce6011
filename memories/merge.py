"""Two texts that were made from one, as one text again: a draft for who settles a conflict."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence

_WORDS = re.compile(r"\s+|\w+|[^\w\s]")
_MAX_WORDS = 4_000
"""Longer passages that both changed are not compared word by word: that would take too long to wait for."""

Match = dict[int, int]
"""Which token of the base stands where in a text that was made from it."""


def merge_texts(base: str, first: str, second: str) -> str:
    """Return what both texts changed of their base; where they changed the same words, the lines of both."""
    lines = [text.splitlines(keepends=True) for text in (base, first, second)]
    passages = _passages(*lines)
    return "".join(passage if isinstance(passage, str) else _by_words(*passage) for passage in passages)


def _by_words(base: str, first: str, second: str) -> str:
    """Return what both made of the same lines of their base, a line at a time where each is still one line."""
    lines = [text.splitlines(keepends=True) for text in (base, first, second)]
    if len({len(each) for each in lines}) == 1 and len(lines[0]) > 1:
        return "".join(_by_words(*line) for line in zip(*lines, strict=True))
    tokens = [_WORDS.findall(text) for text in (base, first, second)]
    passages = list(_passages(*tokens)) if base and sum(map(len, tokens)) <= _MAX_WORDS else [("", "", "")]
    if all(isinstance(passage, str) for passage in passages):
        return "".join(map(str, passages))
    return first + ("" if first.endswith("\n") or not first else "\n") + second


def _passages(base: Sequence[str], first: Sequence[str], second: Sequence[str]) -> Iterator[str | tuple[str, str, str]]:
    """Yield text on which there is agreement, and (base, first, second) where both changed the same."""
    in_first, in_second = _matches(base, first), _matches(base, second)
    at = at_first = at_second = 0
    for place in [*(each for each in range(len(base)) if each in in_first and each in in_second), len(base)]:
        to_first, to_second = in_first.get(place, len(first)), in_second.get(place, len(second))
        yield _settled("".join(base[at:place]), "".join(first[at_first:to_first]), "".join(second[at_second:to_second]))
        if place < len(base):
            yield base[place]
        at, at_first, at_second = place + 1, to_first + 1, to_second + 1


def _settled(base: str, first: str, second: str) -> str | tuple[str, str, str]:
    if first in (base, second):
        return second
    return first if second == base else (base, first, second)


def _matches(base: Sequence[str], other: Sequence[str]) -> Match:
    matcher = difflib.SequenceMatcher(None, base, other, autojunk=False)
    return {start + step: to + step for start, to, size in matcher.get_matching_blocks() for step in range(size)}
