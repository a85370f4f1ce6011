"""How an app says what of it can be found: which event makes which document, and where its text is.

The index itself is built above, from these declarations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from memoryhub.core.events.event_types import EventType, Speech, event_type
from memoryhub.core.events.projection import Event


@dataclass(frozen=True, slots=True)
class Document:
    """One findable thing, as it is now."""

    id: int
    source: str
    title: str
    body: str
    created_at: datetime
    kind: str = ""
    type: str = ""
    session_id: str = ""
    near: str = ""
    """What stands beside it and is not its own: what was said before and after a message."""


@dataclass(frozen=True, slots=True)
class Removal:
    """These are no longer to be found."""

    ids: tuple[int, ...]


Made = Document | Removal | Sequence[Document] | None
DocumentMaker = Callable[[Event[Any]], Made]


_makers: dict[str, list[DocumentMaker]] = {}
_texts: dict[str, Callable[[], str]] = {}


def indexed_when(*event_types: EventType[Any] | Speech) -> Callable[[DocumentMaker], DocumentMaker]:
    """Register the decorated function: it says what is to be found after an event of these types, or such a message."""

    def register(function: DocumentMaker) -> DocumentMaker:
        for each in event_types:
            _makers.setdefault(each if isinstance(each, Speech) else each.name, []).append(function)
        return function

    return register


def makers_for(event_name: str) -> list[DocumentMaker]:
    """Return who is to be asked after an event of this type."""
    known = event_type(event_name)
    of_speech = _makers.get(known.speech, []) if known and known.speech else []
    return [*_makers.get(event_name, []), *of_speech]


def define_text(source: str, sql: str | Callable[[], str]) -> None:
    """Register where a source's text is: a SELECT of ``id, title, body``, one row an entity, or what returns one."""
    _texts[source] = sql if callable(sql) else lambda: sql


def text_queries() -> dict[str, str]:
    """Return the SELECT of every source, by its name."""
    return {source: sql() for source, sql in _texts.items()}
