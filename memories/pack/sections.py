"""Sections of a context pack, how they share its budget, and how a pack's text is recognised when it comes back."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import IntEnum
from functools import cached_property
from itertools import chain
from typing import NamedTuple

from django.db import DatabaseError

from memories.models import ContextPack, MemoryScope
from memories.pack.answers import STRICT_CHOICE, WIDE_CHOICE, AnswerChoice, RatedEntry, StoreAnswers, answers_in
from memories.pack_sorts import ABSENT, NOTE, OVERLAP, RECALL, SESSION, PackSort
from memories.schemas import SearchSourceName
from memories.scopes import Level, hidden_among
from memories.search import engine
from memories.search.parsed_query import ParsedQuery, parse
from memories.search.snippets import words_in
from memories.search.weights import USUAL
from memories.validity.amendments import Pair
from memories.validity.selectors import marks_of
from memoryhub.core.errors import HubError, Invalid
from memoryhub.core.paging import estimate_tokens
from memoryhub.core.stores.store import StoreId
from memoryhub.core.text import as_data, flat, one_line

logger = logging.getLogger(__name__)

_PACK_LINE = re.compile(r"^- (?:\w+)?#\d+ .+$", re.MULTILINE)
_OPENINGS = "|".join(sort.opening for sort in (SESSION, RECALL, OVERLAP, NOTE))
_PACK_HEAD = re.compile(rf"(?:{_OPENINGS}) (?:#\d+|of )")
# Recent packs whose lines are recognised, and how many lines tell: a single one may be quoted
_LATEST, _LEAST_LINES = 200, 2


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
    if _PACK_HEAD.search(content):
        return True
    lines = _PACK_LINE.findall(content)
    if len(lines) < _LEAST_LINES:
        return False
    sent: set[str] = set()
    for marks in ContextPack.objects.order_by("-id").values_list("marks", flat=True)[:_LATEST]:
        sent.update(marks.values())
    return sum(mark_of(line) in sent for line in lines) >= _LEAST_LINES


class Edition(IntEnum):
    """Ways in which packs were composed; a pack is replayed in the one in which it was sent."""

    # With superseded memories, and facts by the beginning of their text (until decision 49)
    WITH_SUPERSEDED = 1
    # With memories that a nearer one hides and with repeated texts; of equal guidelines, the newest first
    WITH_HIDDEN = 2
    # With whatever was written last, until the budget was used up (until decision 94)
    BY_ARRIVAL = 3
    # With a title before a text that begins with it
    WITH_REPEATED_TITLES = 4
    # With the latest prompts that have words of the question, and without other messages (until decision 114)
    WITH_LATEST_PROMPTS = 5
    PRESENT = 6


# Share of the question's words in a text that is about it
_CONCERNS = 0.34


@dataclass(frozen=True, slots=True)
class GatherRequest:
    # The visible stores, nearest first; views of them when a pack is replayed
    chain: Sequence[Level]
    now: datetime
    # The question; without one, what the working tree is about
    query: ParsedQuery
    is_asked: bool = True
    # A session is not its own last session
    session_id: str = ""
    # The session whose work an opening begins with, "" for none; None for packs that are no opening
    progress_of: str | None = None
    # Candidates per section and store
    most: int = 40
    edition: Edition = Edition.PRESENT
    # By store, what the query finds: ranked and rated once for all sections
    answers_by_store: dict[StoreId, StoreAnswers] = field(default_factory=dict)

    @property
    def has_superseded(self) -> bool:
        return self.edition is Edition.WITH_SUPERSEDED

    @property
    def is_by_worth(self) -> bool:
        return self.edition > Edition.BY_ARRIVAL

    @property
    def choice(self) -> AnswerChoice:
        is_strict = self.edition <= Edition.WITH_LATEST_PROMPTS or not self.is_asked
        return STRICT_CHOICE if is_strict else WIDE_CHOICE

    @property
    def has_question(self) -> bool:
        return self.is_by_worth and self.is_asked and bool(self.query.terms)

    def concerns(self, text: str) -> bool:
        """Return whether a text has enough words of the question; True without one."""
        words = self.query.terms
        return not self.has_question or len(words_in(text, words)) >= max(min(2, len(words)), _CONCERNS * len(words))

    def hidden(self, level: Level, ids: Collection[int]) -> set[int]:
        """Return the memories of a level that a nearer one hides, among ``ids``; call it in the caller's store."""
        if self.edition < Edition.BY_ARRIVAL:
            return set()
        return hidden_among(ids, level, self.chain)

    def matching(self, level: Level, source: SearchSourceName) -> dict[int, float]:
        """Map the entries of a source in the current store that match the query to their scores, best first."""
        if self.is_by_worth:
            return {entry: answer.score for entry, answer in self.answers(level, source).items()}
        if not self.query.text:
            return {}
        pipeline = replace(USUAL, lowers_empty_sections=self.edition >= Edition.BY_ARRIVAL)
        return dict(engine.rank(self.query.among([source]), "auto", level, pipeline=pipeline).hits[: self.most])

    def answers(self, level: Level, source: SearchSourceName) -> dict[int, RatedEntry]:
        """Map the entries of a source in the current store to the passages that answer the query, best first."""
        if not self.query.text:
            return {}
        if level.store not in self.answers_by_store:
            self.answers_by_store[level.store] = answers_in(level, self.query, self.choice)
        return self.answers_by_store[level.store].by_source.get(source, {})

    def best_relevance(self) -> float:
        """Return how much the best passage that was found is about the query."""
        return max((answers.best for answers in self.answers_by_store.values()), default=0.0)


class PackItem:
    """One line of a pack. ``line`` may be a function: most items find no room, and formatting them all is slow."""

    def __init__(
        self,
        reference: str,
        line: str | Callable[[], str],
        text: str = "",
        passage: str = "",
        *,
        is_checked: bool = False,
    ) -> None:
        # ``#412``, or ``global#12``
        self.reference = reference
        # A pack has one item of each text; "" is no text
        self.text = text
        # Which part of the text the line shows, such as ``900-1280``; "" is its beginning
        self.passage = passage
        # Whether the line was made of that of another item
        self._is_checked = is_checked
        self._line = line

    @cached_property
    def line(self) -> str:
        line = self._line if isinstance(self._line, str) else self._line()
        # Stored text can neither begin a line of its own nor imitate a remark (decisions 33 and 97)
        return flat(line) if self._is_checked else as_data(flat(line))

    @property
    def mark(self) -> str:
        return mark_of(self.line)

    def with_remark(self, remark: str) -> PackItem:
        """Return the item with a remark after its reference, which stays when the line is cut."""
        marked = f"{self.reference} ({remark})"
        return PackItem(
            self.reference,
            lambda: self.line.replace(self.reference, marked, 1),
            self.text,
            self.passage,
            is_checked=True,
        )

    def shorter(self) -> PackItem:
        line = f"{self.line[: len(self.line) * 9 // 10]}…"
        return PackItem(self.reference, line, passage=self.passage, is_checked=True)

    def within(self, tokens: int) -> PackItem:
        """Return the item, cut until it takes fewer tokens."""
        item = self
        while estimate_tokens(item.line) >= max(tokens, LEAST_TOKENS) and len(item.line) > LEAST_TOKENS:
            item = item.shorter()
        return item

    def cut(self, longest: int) -> PackItem:
        if len(self.line) <= longest:
            return self
        return PackItem(self.reference, one_line(self.line, longest), passage=self.passage, is_checked=True)


@dataclass(frozen=True, slots=True)
class SectionDefinition:
    name: str
    title: str
    order: int
    # Its part of the budget; what remains goes to the sections after it
    share: float
    # Characters of an item
    longest: int
    # Most important first. Called in the current store; it queries the other stores of the chain itself
    items: Callable[[GatherRequest], Sequence[PackItem]]
    # Tool that finds the items left out; "" if the title does not count these
    more: str
    # How many items there are; called if there may be more than ``items`` returned
    count: Callable[[GatherRequest], int] | None = None
    # Tokens that it has at most, whatever the budget; 0 for no limit
    most_tokens: int = 0

    def key(self, item: PackItem) -> str:
        """Return the key of an item's mark: ``facts #412``, or ``recall 900-1280 #412`` with the part that it shows."""
        return " ".join(filter(None, (self.name, item.passage, item.reference)))


# Items of live entries of the current store, given its level, ids, the time, and the passages to show by id, as slices
# of their texts; what has expired by then is left out
Recallable = Callable[[Level, Sequence[int], datetime, Mapping[int, slice]], Mapping[int, PackItem]]

_sections: dict[str, SectionDefinition] = {}
_recallable: dict[str, Recallable] = {}


def define_section(section: SectionDefinition) -> None:
    _sections[section.name] = section


def all_sections() -> list[SectionDefinition]:
    return sorted(_sections.values(), key=lambda section: section.order)


def define_recallable(source: str, items: Recallable) -> None:
    """Register a search source whose entries may be given at a prompt."""
    _recallable[source] = items


def recallable_sources() -> dict[str, Recallable]:
    return dict(_recallable)


def without_repeats(items: Iterable[PackItem]) -> list[PackItem]:
    distinct: dict[str, PackItem] = {}
    for item in items:
        distinct.setdefault(item.reference, item)
    return list(distinct.values())


def reference(level: Level, entity_id: int) -> str:
    widest = level.scopes[-1]
    if widest in (MemoryScope.PROJECT, MemoryScope.SESSION):
        return f"#{entity_id}"
    return f"{widest}#{entity_id}"


def ids_at(level: Level, references: Iterable[str]) -> set[int]:
    """Return the ids of those references that are to entries of a level."""
    scope = reference(level, 0).partition("#")[0]
    parts = (name.partition("#") for name in references)
    return {int(entry) for name, _, entry in parts if name == scope}


@contextmanager
def isolated(section: SectionDefinition) -> Iterator[None]:
    # Not what the store refuses: that is no fault of the section, and a pack without it would seem complete
    try:
        yield
    except (HubError, DatabaseError, OSError):
        raise
    except Exception:
        logger.exception("section %s of a context pack is left out", section.name)


LEAST_TOKENS = 30
_LEAST_CANDIDATES = 40


@dataclass(frozen=True, slots=True)
class FilledSection:
    section: SectionDefinition
    items: Sequence[PackItem]
    left_out: int
    tokens: int

    def lines(self) -> list[str]:
        is_listed = self.left_out and self.section.more
        more = f" ({self.left_out} more: {self.section.more})" if is_listed else ""
        return [f"{self.section.title}{more}:", *(item.line for item in self.items)]


@dataclass(frozen=True, slots=True)
class Remarks:
    """What is known against the entries of a pack, by their references; stored with the pack for its replay."""

    # For entries that are given with the remark
    beside: Mapping[str, str] = field(default_factory=dict)
    # For entries that are only listed for a recheck
    rechecks: Mapping[str, str] = field(default_factory=dict)

    def among(self, references: Collection[str]) -> Remarks:
        beside = {name: text for name, text in self.beside.items() if name in references}
        return Remarks(beside, {name: text for name, text in self.rechecks.items() if name in references})


NO_REMARKS = Remarks()


def remarks_on(level: Level, ids: Sequence[int], pairs: Sequence[Pair] | None = None) -> Remarks:
    """Return what is known against entries of the current store."""
    beside: dict[str, str] = {}
    rechecks: dict[str, str] = {}
    for entry, marks in marks_of(ids, pairs).items():
        against = [mark.text for mark in marks if mark.withheld]
        if against:
            rechecks[reference(level, entry)] = "; ".join(against)
        else:
            beside[reference(level, entry)] = "; ".join(mark.text for mark in marks)
    return Remarks(beside, rechecks)


@dataclass(frozen=True, slots=True)
class PackBody:
    sections: Sequence[FilledSection]
    # Whether there is more than these items
    truncated: bool = False
    sort: PackSort = SESSION
    # Whether nothing stored is about the query
    absent: bool = False
    remarks: Remarks = NO_REMARKS

    @property
    def text(self) -> str:
        return "\n".join(chain.from_iterable(map(FilledSection.lines, self.sections)))

    @property
    def digest(self) -> str:
        text = f"{ABSENT}\n{self.text}" if self.absent else self.text
        return hashlib.sha256(text.encode()).hexdigest()

    def marks(self) -> dict[str, str]:
        return {filled.section.key(item): item.mark for filled in self.sections for item in filled.items}

    def references(self) -> set[str]:
        return {item.reference for filled in self.sections for item in filled.items}


def most_items(max_tokens: int) -> int:
    """Return how many candidates a section needs to fill a budget."""
    return max(_LEAST_CANDIDATES, max_tokens // LEAST_TOKENS)


class GatheredSection(NamedTuple):
    section: SectionDefinition
    # Most important first
    items: Sequence[PackItem]
    # How many there are, of which ``items`` are the first
    total: int


def gather(request: GatherRequest) -> list[GatheredSection]:
    """Return the sections that have items, with as many of their items as could fit; one that fails is left out."""
    sections: list[GatheredSection] = []
    texts: set[str] = set()
    for section in all_sections():
        with isolated(section):
            gathered = _gather_section(section, request)
            if request.is_by_worth:
                gathered = _without_repeated_texts(gathered, texts)
            if gathered.items:
                sections.append(gathered)
    # Where nothing has a word of the question: what the project says without one
    is_answered = bool(sections) or not request.has_question
    return sections if is_answered else gather(replace(request, query=parse("")))


# Until decision 49, sections counted their candidates, and only these two looked at the question
_BY_QUESTION = ("facts", "decisions")
_COMMITS_BEFORE = 8


def _gather_section(section: SectionDefinition, request: GatherRequest) -> GatheredSection:
    is_before = request.has_superseded
    if is_before:
        query = request.query if section.name in _BY_QUESTION else parse("")
        request = replace(request, most=_LEAST_CANDIDATES, query=query)
    items = section.items(request)
    total = len(items)
    if is_before and items and section.name == "work":
        total = min(total, _COMMITS_BEFORE + (" open iteration " in items[0].line))
    is_more = total >= request.most or (request.is_by_worth and not request.is_asked)
    if not is_before and section.count and is_more and not request.has_question:
        total = section.count(request)
    return GatheredSection(section, items, total)


# Texts that an earlier section or item has are not counted either
def _without_repeated_texts(gathered: GatheredSection, texts: set[str]) -> GatheredSection:
    distinct: list[PackItem] = []
    for item in gathered.items:
        if item.text not in texts:
            distinct.append(item)
            texts |= {item.text} - {""}
    return gathered._replace(items=distinct, total=gathered.total - (len(gathered.items) - len(distinct)))
