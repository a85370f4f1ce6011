"""What a section of a pack is. Apps declare theirs; those above ``memories`` do so without being known here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from memories.pack.echo import mark_of
from memories.scopes import Level
from memories.search.parsed_query import ParsedQuery
from memoryhub.core.text import flat


@dataclass(frozen=True, slots=True)
class Request:
    """What a pack is for."""

    chain: Sequence[Level]
    """The stores that hold here, nearest first; or views of them, when an earlier pack is made again."""
    now: datetime
    query: ParsedQuery
    session_id: str = ""
    """Whose pack it is: a session is not its own last session."""


class Item:
    """One thing that is told, on one line. Most things find no room, so a line may be made when it is asked for."""

    def __init__(self, reference: str, line: str | Callable[[], str]) -> None:
        """``reference`` is ``#412``, or ``global#12``."""
        self.reference = reference
        self._line = line

    @cached_property
    def line(self) -> str:
        """The line. Stored text cannot begin another one, whatever the section has put into it."""
        return flat(self._line if isinstance(self._line, str) else self._line())

    @property
    def mark(self) -> str:
        """By which a later pack knows whether it has changed."""
        return mark_of(self.line)


@dataclass(frozen=True, slots=True)
class Section:
    """One part of a pack."""

    name: str
    title: str
    order: int
    share: float
    """Of the budget; what a section leaves over goes to those after it."""
    longest: int
    """Characters of an item."""
    items: Callable[[Request], Sequence[Item]]
    """The most important first, in the current store; each asks the other stores of the chain itself."""
    more: str
    """How to get what was left out."""


_sections: dict[str, Section] = {}


def define_section(section: Section) -> None:
    """Register a part of every pack."""
    _sections[section.name] = section


def all_sections() -> list[Section]:
    """Return the parts of a pack in their order."""
    return sorted(_sections.values(), key=lambda section: section.order)


def without_repeats(items: Iterable[Item]) -> list[Item]:
    """Return the items in their order, each thing once."""
    kept: dict[str, Item] = {}
    for item in items:
        kept.setdefault(item.reference, item)
    return list(kept.values())
