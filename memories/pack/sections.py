from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import IntEnum
from functools import cached_property

from memories.inheritance import hidden_among
from memories.models import MemoryScope
from memories.pack.echo import mark_of
from memories.schemas import SearchSourceName
from memories.scopes import Level
from memories.search import engine
from memories.search.parsed_query import ParsedQuery
from memories.search.pipeline import USUAL
from memoryhub.core.text import flat


class Edition(IntEnum):
    """Ways in which packs were composed; a pack is replayed in the one in which it was sent."""

    # With superseded memories, and facts by the beginning of their text (until decision 49)
    WITH_SUPERSEDED = 1
    # With memories that a nearer one hides and with repeated texts; of equal guidelines, the newest first
    WITH_HIDDEN = 2
    PRESENT = 3


@dataclass(frozen=True, slots=True)
class Request:
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


class Item:
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
class Section:
    name: str
    title: str
    order: int
    # Of the budget; what is left goes to the sections after it
    share: float
    # Characters of an item
    longest: int
    # Most important first. Called in the current store; it queries the other stores of the chain itself
    items: Callable[[Request], Sequence[Item]]
    # Tool that finds the items left out
    more: str
    # How many items there are; called if there may be more than ``items`` returned
    count: Callable[[Request], int] | None = None


# Items of live entries of the current store, given its level, ids, and the time: what has expired by then is left out
Recallable = Callable[[Level, Sequence[int], datetime], Mapping[int, Item]]

_sections: dict[str, Section] = {}
_recallable: dict[str, Recallable] = {}


def define_section(section: Section) -> None:
    _sections[section.name] = section


def all_sections() -> list[Section]:
    return sorted(_sections.values(), key=lambda section: section.order)


def without_repeats(items: Iterable[Item]) -> list[Item]:
    kept: dict[str, Item] = {}
    for item in items:
        kept.setdefault(item.reference, item)
    return list(kept.values())


def without_repeated_texts(items: Iterable[Item], texts: Collection[str]) -> list[Item]:
    """Return the items whose text is neither in ``texts`` nor that of an item before."""
    seen = set(texts) - {""}
    distinct: list[Item] = []
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
