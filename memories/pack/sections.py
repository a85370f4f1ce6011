from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from memories.models import MemoryScope
from memories.pack.echo import mark_of
from memories.schemas import SearchSourceName
from memories.scopes import Level
from memories.search import engine
from memories.search.parsed_query import ParsedQuery
from memoryhub.core.text import flat


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
    # As in packs sent before decision 49: with superseded memories, and facts by the beginning of their text
    as_before: bool = False

    def matching(self, level: Level, source: SearchSourceName) -> dict[int, float]:
        """Return the entries of a source in the current store that match the query, best first, with their scores."""
        if not self.query.text:
            return {}
        return dict(engine.rank(self.query.among(source), "auto", level).hits[: self.most])


class Item:
    """One line of a pack. ``line`` may be a function: most items find no room, and formatting them all is slow."""

    def __init__(self, reference: str, line: str | Callable[[], str]) -> None:
        # ``#412``, or ``global#12``
        self.reference = reference
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


def define_recallable(source: str, items: Recallable) -> None:
    """Register a search source whose entries may be given at a prompt."""
    _recallable[source] = items


def recallable_sources() -> dict[str, Recallable]:
    return dict(_recallable)


def reference(level: Level, entity_id: int) -> str:
    widest = level.scopes[-1]
    return f"#{entity_id}" if widest in (MemoryScope.PROJECT, MemoryScope.SESSION) else f"{widest}#{entity_id}"
