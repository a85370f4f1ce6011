"""What a section of a pack is. Apps declare theirs; those above ``memories`` do so without being known here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from memories.pack.told import mark_of
from memories.scopes import Level


@dataclass(frozen=True, slots=True)
class Request:
    """What a pack is for."""

    chain: Sequence[Level]
    """The stores that hold here, nearest first; or views of them, when an earlier pack is made again."""
    now: datetime
    query: str = ""
    session_id: str = ""
    """Whose pack it is: a session is not its own last session."""


@dataclass(frozen=True, slots=True)
class Item:
    """One thing that is told, on one line."""

    reference: str
    """``#412``, or ``global#12``."""
    line: str

    @property
    def mark(self) -> str:
        """By which a later pack knows whether it has changed; worked out for what is told, which is little."""
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


def one_line(text: str, longest: int) -> str:
    """Return the text on one line, cut."""
    line = " ".join(text.split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"
