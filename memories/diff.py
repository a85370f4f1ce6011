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
    """The steps that remain for one comparison, or for all comparisons of an answer."""

    remaining: int = _MAX_STEPS


class _Matcher(difflib.SequenceMatcher[str]):
    """Finds no more matches where the remaining steps do not suffice: there, the whole passage differs."""

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
        if steps > self._effort.remaining:
            return difflib.Match(alo, blo, 0)
        self._effort.remaining -= steps
        return super().find_longest_match(alo, ahi, blo, bhi)


@dataclass(frozen=True, slots=True)
class DiffPart:
    """Part of a comparison: unchanged text, ``removed`` text and what was ``added`` in its place, or lines left out."""

    text: str = ""
    removed: str = ""
    added: str = ""
    hidden_lines: int = 0


def compare(before: str, after: str, effort: Effort | None = None) -> Iterator[DiffPart]:
    effort = effort or Effort()
    old = before.splitlines(keepends=True)
    new = after.splitlines(keepends=True)
    opcodes = _Matcher(old, new, effort, autojunk=len(old) > 5_000).get_opcodes()
    for place, (what, start, end, new_start, new_end) in enumerate(opcodes):
        if what != "equal":
            yield from _changed_parts("".join(old[start:end]), "".join(new[new_start:new_end]), effort)
            continue
        lines = old[start:end]
        head = lines[:_AROUND] if place > 0 else []
        tail = lines[-_AROUND:] if place < len(opcodes) - 1 else []
        hidden = len(lines) - len(head) - len(tail)
        if hidden <= 1:
            yield DiffPart("".join(lines))
        else:
            yield from [DiffPart("".join(head)), DiffPart(hidden_lines=hidden), DiffPart("".join(tail))]


def marked_diff(before: str, after: str, effort: Effort | None = None) -> str:
    """Return the comparison as text with ``[-removed-]`` and ``{+added+}``; "" if equal."""
    if before == after:
        return ""
    marked = []
    for part in compare(before, after, effort):
        if part.hidden_lines:
            marked.append(f"[… {part.hidden_lines} lines …]\n")
            continue
        marked.append(part.text)
        if part.removed:
            marked.append(f"[-{part.removed}-]")
        if part.added:
            marked.append(f"{{+{part.added}+}}")
    return "".join(marked)


def _changed_parts(before: str, after: str, effort: Effort) -> Iterator[DiffPart]:
    old = _WORDS.findall(before)
    new = _WORDS.findall(after)
    if len(old) + len(new) > _MAX_WORDS:
        yield DiffPart(removed=before, added=after)
        return
    for what, start, end, new_start, new_end in _Matcher(old, new, effort).get_opcodes():
        if what == "equal":
            yield DiffPart("".join(old[start:end]))
        else:
            yield DiffPart(removed="".join(old[start:end]), added="".join(new[new_start:new_end]))


def merge_texts(base: str, first: str, second: str) -> str:
    """Three-way merge. Where both sides changed the same words, the lines of both are kept."""
    effort = Effort()
    lines = [text.splitlines(keepends=True) for text in (base, first, second)]
    passages = _passages(effort, *lines)
    return "".join(passage if isinstance(passage, str) else _by_words(effort, *passage) for passage in passages)


# Merges a conflicting passage word by word; line by line where all three sides have as many lines
def _by_words(effort: Effort, base: str, first: str, second: str) -> str:
    lines = [text.splitlines(keepends=True) for text in (base, first, second)]
    if len({len(side) for side in lines}) == 1 and len(lines[0]) > 1:
        return "".join(_by_words(effort, *line) for line in zip(*lines, strict=True))
    tokens = [_WORDS.findall(text) for text in (base, first, second)]
    if base and sum(map(len, tokens)) <= _MAX_WORDS:
        passages = list(_passages(effort, *tokens))
        if all(isinstance(passage, str) for passage in passages):
            return "".join(map(str, passages))
    if first and not first.endswith("\n"):
        first += "\n"
    return first + second


# Yields merged text, and (base, first, second) where both sides changed the same tokens
def _passages(
    effort: Effort, base: Sequence[str], first: Sequence[str], second: Sequence[str]
) -> Iterator[str | tuple[str, str, str]]:
    in_first = _matches(base, first, effort)
    in_second = _matches(base, second, effort)
    in_both = [place for place in range(len(base)) if place in in_first and place in in_second]
    at = at_first = at_second = 0
    for place in [*in_both, len(base)]:
        to_first = in_first.get(place, len(first))
        to_second = in_second.get(place, len(second))
        yield _resolved(
            "".join(base[at:place]), "".join(first[at_first:to_first]), "".join(second[at_second:to_second])
        )
        if place < len(base):
            yield base[place]
        at, at_first, at_second = place + 1, to_first + 1, to_second + 1


def _resolved(base: str, first: str, second: str) -> str | tuple[str, str, str]:
    if first in (base, second):
        return second
    if second == base:
        return first
    return base, first, second


# Maps the index of a token in the base to its index in a text derived from it
def _matches(base: Sequence[str], other: Sequence[str], effort: Effort) -> dict[int, int]:
    blocks = _Matcher(base, other, effort).get_matching_blocks()
    return {start + step: to + step for start, to, size in blocks for step in range(size)}
