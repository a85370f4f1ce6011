"""Find where any of many words begins, in one pass over the text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

_END = ""


class Keywords:
    """A set of words, as one pattern that shares their beginnings: its cost hardly grows with their number."""

    def __init__(self, words: Iterable[str]) -> None:
        tree: dict[str, Any] = {}
        for word in words:
            node = tree
            for char in word:
                node = node.setdefault(char, {})
            node[_END] = {}
        self._pattern = re.compile(_pattern(tree)) if tree else None

    def places(self, text: str) -> Iterator[tuple[int, str]]:
        """Yield each place where a word begins, with the longest that does; words may overlap."""
        match = self._pattern.search(text) if self._pattern else None
        while self._pattern and match:
            yield match.start(), match[0]
            match = self._pattern.search(text, match.start() + 1)


def _pattern(node: dict[str, Any]) -> str:
    """Return the pattern of the words' remainders; where one ends here, the longer ones are optional."""
    branches = [re.escape(char) + _pattern(rest) for char, rest in node.items() if char != _END]
    if not branches:
        return ""
    grouped = branches[0] if len(branches) == 1 and _END not in node else f"(?:{'|'.join(branches)})"
    return f"{grouped}?" if _END in node else grouped
