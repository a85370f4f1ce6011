"""Declarations of what search finds: which events produce documents, and where their text is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

from memoryhub.core.events.event_types import EventType, Speech, event_type
from memoryhub.core.events.projection import Event


# One searchable entity in its current state.
@dataclass(frozen=True, slots=True)
class Document:
    id: int
    source: str
    title: str
    body: str
    created_at: datetime
    kind: str = ""
    type: str = ""
    session_id: str = ""
    # Context that is not part of it: the messages before and after a message (decision 20), the links of a section.
    near: str = ""


# These entities are no longer searchable.
@dataclass(frozen=True, slots=True)
class Removal:
    ids: tuple[int, ...]


Made = Document | Removal | Sequence[Document] | None
DocumentMaker = Callable[[Event[Any]], Made]


_makers: dict[str, list[DocumentMaker]] = {}
_texts: dict[str, Callable[[], str]] = {}


def indexed_when(*triggers: EventType[Any] | Speech) -> Callable[[DocumentMaker], DocumentMaker]:
    """Register the decorated function: it returns the documents after an event of these types, or such a message."""

    def register(function: DocumentMaker) -> DocumentMaker:
        for trigger in triggers:
            _makers.setdefault(trigger if isinstance(trigger, Speech) else trigger.name, []).append(function)
        return function

    return register


def makers_for(event_name: str) -> list[DocumentMaker]:
    """Return the functions to call after an event of this type."""
    known_type = event_type(event_name)
    of_speech = _makers.get(known_type.speech, []) if known_type and known_type.speech else []
    return [*_makers.get(event_name, []), *of_speech]


def define_text(source: str, sql: str | Callable[[], str]) -> None:
    """Register a source's text: a SELECT of ``id, title, body`` per entity, or a function that returns it."""
    _texts[source] = sql if callable(sql) else lambda: sql
    text_queries.cache_clear()


@cache
def text_queries() -> dict[str, str]:
    """Return the SELECT of every source by name."""
    return {source: sql() for source, sql in _texts.items()}
