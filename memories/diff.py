"""Word-by-word comparison and three-way merge of texts."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_WORDS = re.compile(r"\s+|\w+|[^\w\s]")
_AROUND = 2
# Passages of more words are not compared word by word, which would take too long
_MAX_WORDS = 4_000


@dataclass(frozen=True, slots=True)
class Piece:
    """Part of a comparison: unchanged text, text ``gone`` and ``come`` in its place, or lines left out."""

    text: str = ""
    gone: str = ""
    come: str = ""
    hidden_lines: int = 0


def compare(before: str, after: str) -> Iterator[Piece]:
    old, new = _lines(before), _lines(after)
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=len(old) > 5_000)
    opcodes = matcher.get_opcodes()
    for place, (what, start, end, new_start, new_end) in enumerate(opcodes):
        if what == "equal":
            yield from _unchanged(old[start:end], is_first=place == 0, is_last=place == len(opcodes) - 1)
        else:
            yield from _changed("".join(old[start:end]), "".join(new[new_start:new_end]))


def marked_diff(before: str, after: str) -> str:
    """Return the comparison as text with ``[-removed-]`` and ``{+added+}``; "" if equal."""
    return "" if before == after else "".join(map(_marked, compare(before, after)))


def _marked(piece: Piece) -> str:
    if piece.hidden_lines:
        return f"[… {piece.hidden_lines} lines …]\n"
    gone = f"[-{piece.gone}-]" if piece.gone else ""
    come = f"{{+{piece.come}+}}" if piece.come else ""
    return f"{piece.text}{gone}{come}"


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def _unchanged(lines: Sequence[str], *, is_first: bool, is_last: bool) -> Iterator[Piece]:
    head = [] if is_first else list(lines[:_AROUND])
    tail = [] if is_last else list(lines[-_AROUND:])
    hidden = len(lines) - len(head) - len(tail)
    if hidden <= 1:
        yield Piece("".join(lines))
        return
    yield from [Piece("".join(head)), Piece(hidden_lines=hidden), Piece("".join(tail))]


def _changed(before: str, after: str) -> Iterator[Piece]:
    old, new = _WORDS.findall(before), _WORDS.findall(after)
    if len(old) + len(new) > _MAX_WORDS:
        yield Piece(gone=before, come=after)
        return
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for what, start, end, new_start, new_end in matcher.get_opcodes():
        was, now = "".join(old[start:end]), "".join(new[new_start:new_end])
        yield Piece(was) if what == "equal" else Piece(gone=was, come=now)


# Index of a token in the base -> its index in a text derived from it
Match = dict[int, int]


def merge_texts(base: str, first: str, second: str) -> str:
    """Three-way merge. Where both sides changed the same words, the lines of both are kept."""
    lines = [text.splitlines(keepends=True) for text in (base, first, second)]
    passages = _passages(*lines)
    return "".join(passage if isinstance(passage, str) else _by_words(*passage) for passage in passages)


# Merges a conflicting passage word by word; line by line where all three sides have as many lines
def _by_words(base: str, first: str, second: str) -> str:
    lines = [text.splitlines(keepends=True) for text in (base, first, second)]
    if len({len(side) for side in lines}) == 1 and len(lines[0]) > 1:
        return "".join(_by_words(*line) for line in zip(*lines, strict=True))
    tokens = [_WORDS.findall(text) for text in (base, first, second)]
    passages = list(_passages(*tokens)) if base and sum(map(len, tokens)) <= _MAX_WORDS else [("", "", "")]
    if all(isinstance(passage, str) for passage in passages):
        return "".join(map(str, passages))
    return first + ("" if first.endswith("\n") or not first else "\n") + second


# Yields merged text, and (base, first, second) where both sides changed the same tokens
def _passages(base: Sequence[str], first: Sequence[str], second: Sequence[str]) -> Iterator[str | tuple[str, str, str]]:
    in_first, in_second = _matches(base, first), _matches(base, second)
    at = at_first = at_second = 0
    for place in [*(index for index in range(len(base)) if index in in_first and index in in_second), len(base)]:
        to_first, to_second = in_first.get(place, len(first)), in_second.get(place, len(second))
        yield _resolved(
            "".join(base[at:place]), "".join(first[at_first:to_first]), "".join(second[at_second:to_second])
        )
        if place < len(base):
            yield base[place]
        at, at_first, at_second = place + 1, to_first + 1, to_second + 1


def _resolved(base: str, first: str, second: str) -> str | tuple[str, str, str]:
    if first in (base, second):
        return second
    return first if second == base else (base, first, second)


def _matches(base: Sequence[str], other: Sequence[str]) -> Match:
    matcher = difflib.SequenceMatcher(None, base, other, autojunk=False)
    return {start + step: to + step for start, to, size in matcher.get_matching_blocks() for step in range(size)}
