"""Sections of a context pack, how they share its budget, and how a pack's text is recognised when it comes back."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import IntEnum
from functools import cached_property
from typing import NamedTuple

from memories.models import RECALL, ContextPack, MemoryScope
from memories.schemas import SearchSourceName
from memories.scopes import Level, hidden_among
from memories.search import engine
from memories.search.parsed_query import ParsedQuery, parse
from memories.search.pipeline import USUAL
from memoryhub.core.errors import Invalid
from memoryhub.core.paging import estimate_tokens
from memoryhub.core.text import flat, one_line


class Edition(IntEnum):
    """Ways in which packs were composed; a pack is replayed in the one in which it was sent."""

    # With superseded memories, and facts by the beginning of their text (until decision 49)
    WITH_SUPERSEDED = 1
    # With memories that a nearer one hides and with repeated texts; of equal guidelines, the newest first
    WITH_HIDDEN = 2
    PRESENT = 3


@dataclass(frozen=True, slots=True)
class GatherRequest:
    # The visible stores, nearest first; views of them when a pack is replayed
    chain: Sequence[Level]
    now: datetime
    query: ParsedQuery
    # A session is not its own last session
    session_id: str = ""
    # Candidates per section and store
    most: int = 40
    edition: Edition = Edition.PRESENT

    @property
    def has_superseded(self) -> bool:
        return self.edition is Edition.WITH_SUPERSEDED

    def hidden(self, level: Level, ids: Collection[int]) -> set[int]:
        """Return the memories of a level that a nearer one hides, among ``ids``; call it in the caller's store."""
        return hidden_among(ids, level, self.chain) if self.edition is Edition.PRESENT else set()

    def matching(self, level: Level, source: SearchSourceName) -> dict[int, float]:
        """Return the entries of a source in the current store that match the query, best first, with their scores."""
        if not self.query.text:
            return {}
        pipeline = replace(USUAL, lowers_empty_sections=self.edition is Edition.PRESENT)
        return dict(engine.rank(self.query.among(source), "auto", level, pipeline=pipeline).hits[: self.most])


class PackItem:
    """One line of a pack. ``line`` may be a function: most items find no room, and formatting them all is slow."""

    def __init__(self, reference: str, line: str | Callable[[], str], text: str = "") -> None:
        # ``#412``, or ``global#12``
        self.reference = reference
        # A pack has one item of each text; "" is no text
        self.text = text
        self._line = line

    @cached_property
    def line(self) -> str:
        # Flattened so that stored text cannot begin a line of its own (decision 33)
        return flat(self._line if isinstance(self._line, str) else self._line())

    @property
    def mark(self) -> str:
        return mark_of(self.line)


@dataclass(frozen=True, slots=True)
class SectionDefinition:
    name: str
    title: str
    order: int
    # Of the budget; what is left goes to the sections after it
    share: float
    # Characters of an item
    longest: int
    # Most important first. Called in the current store; it queries the other stores of the chain itself
    items: Callable[[GatherRequest], Sequence[PackItem]]
    # Tool that finds the items left out
    more: str
    # How many items there are; called if there may be more than ``items`` returned
    count: Callable[[GatherRequest], int] | None = None


# Items of live entries of the current store, given its level, ids, and the time: what has expired by then is left out
Recallable = Callable[[Level, Sequence[int], datetime], Mapping[int, PackItem]]

_sections: dict[str, SectionDefinition] = {}
_recallable: dict[str, Recallable] = {}


def define_section(section: SectionDefinition) -> None:
    _sections[section.name] = section


def all_sections() -> list[SectionDefinition]:
    return sorted(_sections.values(), key=lambda section: section.order)


def without_repeats(items: Iterable[PackItem]) -> list[PackItem]:
    kept: dict[str, PackItem] = {}
    for item in items:
        kept.setdefault(item.reference, item)
    return list(kept.values())


def without_repeated_texts(items: Iterable[PackItem], texts: Collection[str]) -> list[PackItem]:
    """Return the items whose text is neither in ``texts`` nor that of an item before."""
    seen = set(texts) - {""}
    distinct: list[PackItem] = []
    for item in items:
        if item.text not in seen:
            distinct.append(item)
            seen |= {item.text} - {""}
    return distinct


def define_recallable(source: str, items: Recallable) -> None:
    """Register a search source whose entries may be given at a prompt."""
    _recallable[source] = items


def recallable_sources() -> dict[str, Recallable]:
    return dict(_recallable)


def reference(level: Level, entity_id: int) -> str:
    widest = level.scopes[-1]
    return f"#{entity_id}" if widest in (MemoryScope.PROJECT, MemoryScope.SESSION) else f"{widest}#{entity_id}"


# First words of every pack, and of what is given at a prompt
MARK = "Memory Hub context pack"
RECALL_MARK = "Memory Hub recall"
_PACK_LINE = re.compile(r"^- (?:\w+)?#\d+ .+$", re.MULTILINE)
_PACK_HEAD = re.compile(rf"(?:{MARK}|{RECALL_MARK}) (?:#\d+|of )")
# Number of recent packs whose lines are recognised
_LATEST = 200

# A single line may be quoted
_LEAST_LINES = 2


def mark_of(line: str) -> str:
    return hashlib.sha256(line.encode()).hexdigest()[:10]


def refuse_echo(content: str) -> None:
    """Refuse text that came from the hub.

    Raises:
        Invalid: the text is a context pack, or several lines of one.
    """
    if is_echo(content):
        raise Invalid(
            "this text comes from a Memory Hub context pack and is stored already; write only what is new, in your own "
            "words"
        )


def is_echo(content: str) -> bool:
    """Return whether a text is a context pack, or contains several lines of a recent one."""
    return bool(_PACK_HEAD.search(content)) or _has_pack_lines(content)


def _has_pack_lines(content: str) -> bool:
    lines = _PACK_LINE.findall(content)
    if len(lines) < _LEAST_LINES:
        return False
    sent: set[str] = set()
    for marks in ContextPack.objects.order_by("-id").values_list("marks", flat=True)[:_LATEST]:
        sent.update(marks.values())
    return sum(mark_of(line) in sent for line in lines) >= _LEAST_LINES


_LEAST_TOKENS = 30
_LEAST_CANDIDATES = 40
# Tokens of header and footer
_FRAME_TOKENS = 90


@dataclass(frozen=True, slots=True)
class FilledSection:
    section: SectionDefinition
    items: Sequence[PackItem]
    left_out: int
    tokens: int

    def lines(self) -> list[str]:
        more = f" ({self.left_out} more: {self.section.more})" if self.left_out else ""
        return [f"{self.section.title}{more}:", *(item.line for item in self.items)]


@dataclass(frozen=True, slots=True)
class PackBody:
    sections: Sequence[FilledSection]
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


def _key(section: SectionDefinition, item: PackItem) -> str:
    return f"{section.name} {item.reference}"


def most_items(max_tokens: int) -> int:
    """Return how many candidates a section needs to fill a budget."""
    return max(_LEAST_CANDIDATES, max_tokens // _LEAST_TOKENS)


class GatheredSection(NamedTuple):
    section: SectionDefinition
    # Most important first
    items: Sequence[PackItem]
    # How many there are, of which ``items`` are the first
    total: int


def gather(request: GatherRequest) -> list[GatheredSection]:
    """Return the sections that have items, with as many of their items as could fit."""
    if request.edition is Edition.WITH_SUPERSEDED:
        return _gather_with_superseded(request)
    found = [(section, section.items(request)) for section in all_sections()]
    return [GatheredSection(section, items, _total(section, items, request)) for section, items in found if items]


# Until decision 49, sections counted their candidates, and only these two looked at the question
_BY_QUESTION = ("facts", "decisions")
_COMMITS_BEFORE = 8


def _gather_with_superseded(request: GatherRequest) -> list[GatheredSection]:
    asked = replace(request, most=_LEAST_CANDIDATES)
    plain = replace(asked, query=parse(""))
    found = [(section, section.items(asked if section.name in _BY_QUESTION else plain)) for section in all_sections()]
    return [GatheredSection(section, items, _total_before(section, items)) for section, items in found if items]


def _total_before(section: SectionDefinition, items: Sequence[PackItem]) -> int:
    if section.name != "work":
        return len(items)
    return min(len(items), _COMMITS_BEFORE + (" open iteration " in items[0].line))


def _total(section: SectionDefinition, items: Sequence[PackItem], request: GatherRequest) -> int:
    return section.count(request) if section.count and len(items) >= request.most else len(items)


def compose(found: Sequence[GatheredSection], max_tokens: int, *, sent: Mapping[str, str] | None = None) -> PackBody:
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
    return PackBody([section for section in filled if section.items], any(draft.is_cut for draft in drafts))


def _as_sent(section: SectionDefinition, items: Sequence[PackItem], sent: Mapping[str, str]) -> list[PackItem]:
    marks = [(item, sent.get(_key(section, item))) for item in items]
    return [_cut_as_sent(_cut(item, section.longest), mark) for item, mark in marks if mark]


# The last line of a pack was cut to the budget that was left; an item that has changed stays as it is
def _cut_as_sent(item: PackItem, mark: str) -> PackItem:
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


def changed_since(body: PackBody, marks: dict[str, str]) -> tuple[PackBody, list[str]]:
    """Return the items that are new or changed against an earlier pack's marks, and the references that are gone."""
    fresh = [
        FilledSection(filled.section, items, filled.left_out, filled.tokens)
        for filled in body.sections
        if (items := [item for item in filled.items if marks.get(_key(filled.section, item)) != item.mark])
    ]
    gone = sorted({key.partition(" ")[2] for key in set(marks) - set(body.marks())})
    return PackBody(fresh, body.truncated), gone


# The colon of a title, and the count of items left out
_TITLE_TOKENS = 12


@dataclass(slots=True)
class _Draft:
    section: SectionDefinition
    items: Sequence[PackItem]
    total: int
    # Those of all sections so far
    texts: set[str]
    kept: list[PackItem] = field(default_factory=list)
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

    def filled(self) -> FilledSection:
        return FilledSection(self.section, self.kept, self.total - len(self.kept), self.tokens)

    def _next(self) -> PackItem:
        return _cut(self.items[self._at], self.section.longest)

    def _keep(self, item: PackItem) -> int:
        if text := self.items[self._at].text:
            self.texts.add(text)
        self.kept.append(item)
        self.tokens += _cost(item)
        return _cost(item)


def _cost(item: PackItem) -> int:
    return estimate_tokens(f"{item.line}\n")


def within(item: PackItem, tokens: int) -> PackItem:
    while estimate_tokens(item.line) >= max(tokens, _LEAST_TOKENS) and len(item.line) > _LEAST_TOKENS:
        item = _shorter(item)
    return item


def _shorter(item: PackItem) -> PackItem:
    return PackItem(item.reference, f"{item.line[: len(item.line) * 9 // 10]}…")


def _cut(item: PackItem, longest: int) -> PackItem:
    return item if len(item.line) <= longest else PackItem(item.reference, one_line(item.line, longest))
