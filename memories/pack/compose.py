"""Composing a pack: every section within its share of the budget, what it leaves over to those after it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from memories.pack.sections import Item, Request, Section, all_sections
from memoryhub.core.paging import estimate_tokens
from memoryhub.core.text import one_line

_LEAST_TOKENS = 30
_FRAME_TOKENS = 90
"""What the head and the foot take."""


@dataclass(frozen=True, slots=True)
class Filled:
    """A section with the items that fit."""

    section: Section
    items: Sequence[Item]
    left_out: int
    tokens: int

    def lines(self) -> list[str]:
        """Return the section as text."""
        more = f" ({self.left_out} more: {self.section.more})" if self.left_out else ""
        return [f"{self.section.title}{more}:", *(item.line for item in self.items)]


@dataclass(frozen=True, slots=True)
class Body:
    """What a pack says, without the head that numbers it."""

    sections: Sequence[Filled]

    @property
    def text(self) -> str:
        """The sections, one after the other."""
        return "\n".join(line for section in self.sections for line in section.lines())

    @property
    def digest(self) -> str:
        """SHA-256 of the text, in hexadecimal."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    def marks(self) -> dict[str, str]:
        """Return the mark of each item by its section and reference."""
        return {f"{each.section.name} {item.reference}": item.mark for each in self.sections for item in each.items}

    def told(self) -> set[str]:
        """Return the references of all that is told."""
        return {item.reference for each in self.sections for item in each.items}


def compose(request: Request, max_tokens: int) -> Body:
    """Return what is to be told within ``max_tokens``, head and foot included."""
    budget = max(_LEAST_TOKENS, max_tokens - _FRAME_TOKENS)
    filled: list[Filled] = []
    for section in all_sections():
        items = section.items(request)
        if items:
            filled.append(_fill(section, items, int(budget * section.share), budget))
            budget -= filled[-1].tokens
    return Body([each for each in filled if each.items])


def changed_since(body: Body, marks: dict[str, str]) -> tuple[Body, list[str]]:
    """Return what ``body`` says anew against an earlier pack's marks, and the references that are no longer told."""
    fresh = [
        Filled(each.section, items, each.left_out, each.tokens)
        for each in body.sections
        if (items := [item for item in each.items if marks.get(f"{each.section.name} {item.reference}") != item.mark])
    ]
    gone = sorted({key.partition(" ")[2] for key in set(marks) - set(body.marks())})
    return Body(fresh), gone


def _fill(section: Section, items: Sequence[Item], share: int, budget: int) -> Filled:
    """Return the head of ``items`` that fits the share; the first is cut to what is left of the budget, if need be."""
    used = estimate_tokens(section.title) + _TITLE_TOKENS
    if budget - used < _LEAST_TOKENS:
        return Filled(section, [], len(items), 0)
    kept: list[Item] = []
    for whole in items:
        item = _cut(whole, section.longest)
        if not kept:
            item = _within(item, max(share, _LEAST_TOKENS * 2, budget // 4) - used)
        cost = estimate_tokens(item.line) + 1
        if used + cost > (share if kept else budget):
            break
        kept.append(item)
        used += cost
    return Filled(section, kept, len(items) - len(kept), used if kept else 0)


_TITLE_TOKENS = 12
"""A title's colon, and the words that say how many were left out."""


def _within(item: Item, tokens: int) -> Item:
    line = item.line
    while estimate_tokens(line) >= max(tokens, _LEAST_TOKENS) and len(line) > _LEAST_TOKENS:
        line = f"{line[: len(line) * 9 // 10]}…"
    return item if line == item.line else Item(item.reference, line)


def _cut(item: Item, longest: int) -> Item:
    return item if len(item.line) <= longest else Item(item.reference, one_line(item.line, longest))
