from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from memories.models import RECALL
from memories.pack.sections import Edition, Item, Request, Section, all_sections
from memories.search.parsed_query import parse
from memoryhub.core.paging import estimate_tokens
from memoryhub.core.text import one_line

_LEAST_TOKENS = 30
_LEAST_CANDIDATES = 40
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


def most_items(max_tokens: int) -> int:
    """Return how many candidates a section needs to fill a budget."""
    return max(_LEAST_CANDIDATES, max_tokens // _LEAST_TOKENS)


class Found(NamedTuple):
    section: Section
    # Most important first
    items: Sequence[Item]
    # How many there are, of which ``items`` are the first
    total: int


def gather(request: Request) -> list[Found]:
    """Return the sections that have items, with as many of their items as could fit."""
    if request.edition is Edition.WITH_SUPERSEDED:
        return _gather_with_superseded(request)
    found = [(section, section.items(request)) for section in all_sections()]
    return [Found(section, items, _total(section, items, request)) for section, items in found if items]


# Until decision 49, sections counted their candidates, and only these two looked at the question
_BY_QUESTION = ("facts", "decisions")
_COMMITS_BEFORE = 8


def _gather_with_superseded(request: Request) -> list[Found]:
    asked = replace(request, most=_LEAST_CANDIDATES)
    plain = replace(asked, query=parse(""))
    found = [(section, section.items(asked if section.name in _BY_QUESTION else plain)) for section in all_sections()]
    return [Found(section, items, _total_before(section, items)) for section, items in found if items]


def _total_before(section: Section, items: Sequence[Item]) -> int:
    if section.name != "work":
        return len(items)
    return min(len(items), _COMMITS_BEFORE + (" open iteration " in items[0].line))


def _total(section: Section, items: Sequence[Item], request: Request) -> int:
    return section.count(request) if section.count and len(items) >= request.most else len(items)


def compose(found: Sequence[Found], max_tokens: int, *, sent: Mapping[str, str] | None = None) -> Body:
    """Return the content within ``max_tokens`` as text, which includes header and footer.

    Each section first gets its share of the budget; what is left is given to all sections in turn.

    Args:
        found: the sections with their items.
        max_tokens: the budget.
        sent: the marks of an earlier pack, to compose it again; where items of it were erased, no other items come in,
            and no line gets longer.
    """
    budget = max(_LEAST_TOKENS, max_tokens - _FRAME_TOKENS)
    drafts: list[_Draft] = []
    texts: set[str] = set()
    for section, items, total in found:
        draft = _Draft(section, items if sent is None else _as_sent(section, items, sent), total, texts)
        budget -= draft.begin(int(budget * section.share), budget)
        drafts.append(draft)
    _use_up(drafts, budget)
    filled = [draft.filled() for draft in drafts]
    return Body([section for section in filled if section.items], any(draft.is_cut for draft in drafts))


def _as_sent(section: Section, items: Sequence[Item], sent: Mapping[str, str]) -> list[Item]:
    marks = [(item, sent.get(_key(section, item))) for item in items]
    return [_cut_as_sent(_cut(item, section.longest), mark) for item, mark in marks if mark]


# The last line of a pack was cut to the budget that was left; an item that has changed stays as it is
def _cut_as_sent(item: Item, mark: str) -> Item:
    cut = item
    while cut.mark != mark and len(cut.line) > _LEAST_TOKENS:
        cut = _shorter(cut)
    return cut if cut.mark == mark else item


# One item of each section in turn; the last one is cut to what is left
def _use_up(drafts: Sequence[_Draft], budget: int) -> None:
    waiting = [draft for draft in drafts if draft.kept and draft.rest()]
    while waiting:
        for draft in list(waiting):
            cost = (draft.take(budget) or draft.take_cut(budget)) if draft.rest() else 0
            budget -= cost
            if not cost or not draft.rest():
                waiting.remove(draft)


def changed_since(body: Body, marks: dict[str, str]) -> tuple[Body, list[str]]:
    """Return the items that are new or changed against an earlier pack's marks, and the references that are gone."""
    fresh = [
        Filled(filled.section, items, filled.left_out, filled.tokens)
        for filled in body.sections
        if (items := [item for item in filled.items if marks.get(_key(filled.section, item)) != item.mark])
    ]
    gone = sorted({key.partition(" ")[2] for key in set(marks) - set(body.marks())})
    return Body(fresh, body.truncated), gone


# The colon of a title, and the count of items left out
_TITLE_TOKENS = 12


@dataclass(slots=True)
class _Draft:
    section: Section
    items: Sequence[Item]
    total: int
    # Those of all sections so far
    texts: set[str]
    kept: list[Item] = field(default_factory=list)
    repeated: int = 0
    tokens: int = 0

    @property
    def is_cut(self) -> bool:
        return self.total > len(self.kept) + self.repeated

    def rest(self) -> bool:
        while self._at < len(self.items) and self.items[self._at].text in self.texts:
            self.repeated += 1
        return self._at < len(self.items)

    @property
    def _at(self) -> int:
        return len(self.kept) + self.repeated

    # Takes items until the share is used up; the first one is cut to the remaining budget if needed
    def begin(self, share: int, budget: int) -> int:
        title = estimate_tokens(self.section.title) + _TITLE_TOKENS
        if budget - title < _LEAST_TOKENS or not self.rest():
            return 0
        first = within(self._next(), max(share, _LEAST_TOKENS * 2, budget // 4) - title)
        if title + _cost(first) > budget:
            return 0
        self.tokens = title
        self._keep(first)
        while self.rest() and self.take(share - self.tokens):
            pass
        return self.tokens

    # Returns the tokens that the next item takes; 0 if it takes more than ``most``
    def take(self, most: int) -> int:
        item = self._next()
        return self._keep(item) if _cost(item) <= most else 0

    def take_cut(self, most: int) -> int:
        return self._keep(within(self._next(), most - 1)) if most > _LEAST_TOKENS else 0

    def filled(self) -> Filled:
        return Filled(self.section, self.kept, self.total - len(self.kept), self.tokens)

    def _next(self) -> Item:
        return _cut(self.items[self._at], self.section.longest)

    def _keep(self, item: Item) -> int:
        if text := self.items[self._at].text:
            self.texts.add(text)
        self.kept.append(item)
        self.tokens += _cost(item)
        return _cost(item)


def _cost(item: Item) -> int:
    return estimate_tokens(f"{item.line}\n")


def within(item: Item, tokens: int) -> Item:
    while estimate_tokens(item.line) >= max(tokens, _LEAST_TOKENS) and len(item.line) > _LEAST_TOKENS:
        item = _shorter(item)
    return item


def _shorter(item: Item) -> Item:
    return Item(item.reference, f"{item.line[: len(item.line) * 9 // 10]}…")


def _cut(item: Item, longest: int) -> Item:
    return item if len(item.line) <= longest else Item(item.reference, one_line(item.line, longest))
