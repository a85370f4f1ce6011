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
# Pairs of equal tokens: about 0.2 s. Without a limit, 5,000 lines of one letter take minutes.
_MAX_STEPS = 2_000_000


@dataclass(slots=True)
class Effort:
    """The steps that are left for one comparison, or for all comparisons of an answer."""

    left: int = _MAX_STEPS


class _Matcher(difflib.SequenceMatcher[str]):
    """Finds no more matches where the steps that are left do not suffice: there, the whole passage differs."""

    def __init__(self, before: Sequence[str], after: Sequence[str], effort: Effort, *, autojunk: bool = False) -> None:
        super().__init__(None, before, after, autojunk=autojunk)
        self._effort = effort
        self._before = before
        # The places of each token in the text after; not in the type stubs
        self._places: dict[str, list[int]] = self.b2j  # type: ignore[attr-defined]

    def find_longest_match(
        self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None
    ) -> difflib.Match:
        steps = sum([1 + len(self._places.get(token, ())) for token in self._before[alo:ahi]])
        if steps > self._effort.left:
            return difflib.Match(alo, blo, 0)
        self._effort.left -= steps
        return super().find_longest_match(alo, ahi, blo, bhi)


@dataclass(frozen=True, slots=True)
class Piece:
    """Part of a comparison: unchanged text, text ``gone`` and ``come`` in its place, or lines left out."""

    text: str = ""
    gone: str = ""
    come: str = ""
    hidden_lines: int = 0


def compare(before: str, after: str, effort: Effort | None = None) -> Iterator[Piece]:
    effort = effort or Effort()
    old, new = _lines(before), _lines(after)
    matcher = _Matcher(old, new, effort, autojunk=len(old) > 5_000)
    opcodes = matcher.get_opcodes()
    for place, (what, start, end, new_start, new_end) in enumerate(opcodes):
        if what == "equal":
            yield from _unchanged(old[start:end], is_first=place == 0, is_last=place == len(opcodes) - 1)
        else:
            yield from _changed("".join(old[start:end]), "".join(new[new_start:new_end]), effort)


def marked_diff(before: str, after: str, effort: Effort | None = None) -> str:
    """Return the comparison as text with ``[-removed-]`` and ``{+added+}``; "" if equal."""
    return "" if before == after else "".join(map(_marked, compare(before, after, effort)))


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


def _changed(before: str, after: str, effort: Effort) -> Iterator[Piece]:
    old, new = _WORDS.findall(before), _WORDS.findall(after)
    if len(old) + len(new) > _MAX_WORDS:
        yield Piece(gone=before, come=after)
        return
    for what, start, end, new_start, new_end in _Matcher(old, new, effort).get_opcodes():
        was, now = "".join(old[start:end]), "".join(new[new_start:new_end])
        yield Piece(was) if what == "equal" else Piece(gone=was, come=now)


# Index of a token in the base -> its index in a text derived from it
Match = dict[int, int]


def merge_texts(base: str, first: str, second: str) -> str:
    """Three-way merge. Where both sides changed the same words, the lines of both are kept."""
    effort = Effort()
    passages = _passages(effort, *(text.splitlines(keepends=True) for text in (base, first, second)))
    return "".join(passage if isinstance(passage, str) else _by_words(effort, *passage) for passage in passages)


# Merges a conflicting passage word by word; line by line where all three sides have as many lines
def _by_words(effort: Effort, base: str, first: str, second: str) -> str:
    lines = [text.splitlines(keepends=True) for text in (base, first, second)]
    if len({len(side) for side in lines}) == 1 and len(lines[0]) > 1:
        return "".join(_by_words(effort, *line) for line in zip(*lines, strict=True))
    tokens = [_WORDS.findall(text) for text in (base, first, second)]
    passages = list(_passages(effort, *tokens)) if base and sum(map(len, tokens)) <= _MAX_WORDS else [("", "", "")]
    if all(isinstance(passage, str) for passage in passages):
        return "".join(map(str, passages))
    return first + ("" if first.endswith("\n") or not first else "\n") + second


# Yields merged text, and (base, first, second) where both sides changed the same tokens
def _passages(
    effort: Effort, base: Sequence[str], first: Sequence[str], second: Sequence[str]
) -> Iterator[str | tuple[str, str, str]]:
    in_first, in_second = _matches(base, first, effort), _matches(base, second, effort)
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


def _matches(base: Sequence[str], other: Sequence[str], effort: Effort) -> Match:
    blocks = _Matcher(base, other, effort).get_matching_blocks()
    return {start + step: to + step for start, to, size in blocks for step in range(size)}
