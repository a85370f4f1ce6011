"""Text that remembers, through cutting and masking, where each part of it came from."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate

Edit = tuple[int, int, str]


class TracedText:
    """A text made of pieces of an original, each with its place there."""

    def __init__(self, pieces: list[tuple[int, str]]) -> None:
        self.text = "".join(text for _, text in pieces)
        self._pieces = pieces
        self._starts = [0, *accumulate(len(text) for _, text in pieces)][: len(pieces)]

    def origin(self, offset: int) -> int:
        """Return where in the original the character at ``offset`` stands."""
        index = bisect_right(self._starts, offset) - 1
        if index < 0:
            return 0
        return self._pieces[index][0] + offset - self._starts[index]

    def edited(self, edits: Iterable[Edit]) -> TracedText:
        """Return the text with each ``(start, end, replacement)`` made; edits are in order and apart."""
        pieces: list[tuple[int, str]] = []
        cursor = 0
        for start, end, replacement in edits:
            pieces += self._cut(cursor, start)
            if replacement:
                pieces.append((self.origin(start), replacement))
            cursor = end
        return TracedText([*pieces, *self._cut(cursor, len(self.text))])

    def _cut(self, start: int, end: int) -> list[tuple[int, str]]:
        pieces: list[tuple[int, str]] = []
        index = max(0, bisect_right(self._starts, start) - 1)
        while start < end:
            following = self._starts[index + 1] if index + 1 < len(self._starts) else len(self.text)
            stop = min(end, following)
            if stop > start:
                pieces.append((self.origin(start), self.text[start:stop]))
            start, index = stop, index + 1
        return pieces
