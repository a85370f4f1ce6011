from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from memories.models import RECALL
from memories.pack.sections import Item, Request, Section, all_sections
from memoryhub.core.paging import estimate_tokens
from memoryhub.core.text import one_line

_LEAST_TOKENS = 30
# Tokens of header and footer
_FRAME_TOKENS = 90


@dataclass(frozen=True, slots=True)
class Filled:
    section: Section
    items: Sequence[Item]
    left_out: int
    tokens: int

    def lines(self) -> list[str]:
        more = f" ({self.left_out} more: {self.section.more})" if self.left_out else ""
        return [f"{self.section.title}{more}:", *(item.line for item in self.items)]


@dataclass(frozen=True, slots=True)
class Body:
    sections: Sequence[Filled]
    # Whether the budget left items out, of these sections or of others
    truncated: bool = False

    @property
    def text(self) -> str:
        return "\n".join(line for section in self.sections for line in section.lines())

    @property
    def is_recall(self) -> bool:
        return any(filled.section.name == RECALL for filled in self.sections)

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()

    def marks(self) -> dict[str, str]:
        return {_key(filled.section, item): item.mark for filled in self.sections for item in filled.items}

    def references(self) -> set[str]:
        return {item.reference for filled in self.sections for item in filled.items}


def _key(section: Section, item: Item) -> str:
    return f"{section.name} {item.reference}"


Found = Sequence[tuple[Section, Sequence[Item]]]


def gather(request: Request) -> Found:
    """Return the sections that have items, with all their items."""
    found = [(section, section.items(request)) for section in all_sections()]
    return [(section, items) for section, items in found if items]


def compose(found: Found, max_tokens: int, *, only: Collection[str] | None = None) -> Body:
    """Return the content within ``max_tokens`` as text, which includes header and footer.

    Args:
        found: the sections with their items.
        max_tokens: the budget.
        only: keys of an earlier pack's marks, to compose that pack again; other items do not take the place of erased
            ones.
    """
    budget = max(_LEAST_TOKENS, max_tokens - _FRAME_TOKENS)
    filled: list[Filled] = []
    for section, items in found:
        filled.append(_fill(section, items, int(budget * section.share), budget, only))
        budget -= filled[-1].tokens
    return Body([section for section in filled if section.items], any(section.left_out for section in filled))


def changed_since(body: Body, marks: dict[str, str]) -> tuple[Body, list[str]]:
    """Return the items that are new or changed against an earlier pack's marks, and the references that are gone."""
    fresh = [
        Filled(filled.section, items, filled.left_out, filled.tokens)
        for filled in body.sections
        if (items := [item for item in filled.items if marks.get(_key(filled.section, item)) != item.mark])
    ]
    gone = sorted({key.partition(" ")[2] for key in set(marks) - set(body.marks())})
    return Body(fresh, body.truncated), gone


# Takes items from the front until the share is used up; the first one is cut to the remaining budget if needed
def _fill(
    section: Section, items: Sequence[Item], share: int, budget: int, only: Collection[str] | None = None
) -> Filled:
    used = estimate_tokens(section.title) + _TITLE_TOKENS
    if budget - used < _LEAST_TOKENS:
        return Filled(section, [], len(items), 0)
    kept: list[Item] = []
    for whole in items if only is None else [item for item in items if _key(section, item) in only]:
        item = _cut(whole, section.longest)
        if not kept:
            item = within(item, max(share, _LEAST_TOKENS * 2, budget // 4) - used)
        cost = estimate_tokens(item.line) + 1
        if used + cost > (share if kept else budget):
            break
        kept.append(item)
        used += cost
    return Filled(section, kept, len(items) - len(kept), used if kept else 0)


# The colon of a title, and the count of items left out
_TITLE_TOKENS = 12


def within(item: Item, tokens: int) -> Item:
    line = item.line
    while estimate_tokens(line) >= max(tokens, _LEAST_TOKENS) and len(line) > _LEAST_TOKENS:
        line = f"{line[: len(line) * 9 // 10]}…"
    return item if line == item.line else Item(item.reference, line)


def _cut(item: Item, longest: int) -> Item:
    return item if len(item.line) <= longest else Item(item.reference, one_line(item.line, longest))
