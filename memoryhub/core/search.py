"""Declarations of what search finds, and what all read commands share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from memoryhub.core import clock, counters
from memoryhub.core.events.event_types import EventType, Speech, event_type
from memoryhub.core.events.projection import Event
from memoryhub.core.log.views import as_of
from memoryhub.core.schemas import Command, Moment, Position, unlisted

RETRIEVALS = counters.new_timer("retrieval_seconds", "How long answers to questions took", "project", "kind")


def _as_moment(value: object) -> object:
    if not isinstance(value, str):
        return value
    text = value.strip().removeprefix("#")
    if text.isascii() and text.isdecimal():
        return text
    try:
        return clock.from_input(text)
    except ValueError:
        raise ValueError("give a position such as 412, or an ISO 8601 time such as 2026-11-20T08:30:00Z") from None


PastMoment = Annotated[Position | Moment, BeforeValidator(_as_moment)]


# Base of all read commands.
class Retrieval(Command):
    as_of: PastMoment | None = Field(
        None, description="as the store was at this position or ISO time", json_schema_extra=unlisted
    )


@contextmanager
def retrieval(kind: str, command: Retrieval) -> Iterator[None]:
    """Time the block as ``kind``, and read the store as of ``command.as_of`` if it is given."""
    past = nullcontext() if command.as_of is None else as_of(command.as_of)
    # A lazy query that leaves the block would read the present.
    with RETRIEVALS.labels(counters.project_label(), kind).time(), past:
        yield


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


IndexChange = Document | Removal | Sequence[Document] | None
DocumentMaker = Callable[[Event[Any]], IndexChange]
# Takes the positions of events
JointMaker = Callable[[Sequence[int]], Sequence[Document]]


_makers: dict[str, list[DocumentMaker]] = {}
_joint_makers: dict[str, list[JointMaker]] = {}
_texts: dict[str, str | Callable[[], str]] = {}


def indexed_when(*triggers: EventType[Any] | Speech) -> Callable[[DocumentMaker], DocumentMaker]:
    """Register the decorated function: it returns the documents after an event of these types, or such a message."""

    def register(function: DocumentMaker) -> DocumentMaker:
        for trigger in triggers:
            _makers.setdefault(_key_of(trigger), []).append(function)
        return function

    return register


def indexed_together(*triggers: EventType[Any] | Speech) -> Callable[[JointMaker], JointMaker]:
    """Register the decorated function: it returns the documents after all such events of a transaction."""

    def register(function: JointMaker) -> JointMaker:
        for trigger in triggers:
            _joint_makers.setdefault(_key_of(trigger), []).append(function)
        return function

    return register


def makers_for(event_name: str) -> list[DocumentMaker]:
    """Return the functions to call after an event of this type."""
    return [maker for key in _keys_of(event_name) for maker in _makers.get(key, ())]


def joint_makers_for(event_name: str) -> list[JointMaker]:
    """Return the functions to call after events of this type, once for all of a transaction."""
    return [maker for key in _keys_of(event_name) for maker in _joint_makers.get(key, ())]


def _key_of(trigger: EventType[Any] | Speech) -> str:
    return trigger if isinstance(trigger, Speech) else trigger.name


def _keys_of(event_name: str) -> list[str]:
    keys = [event_name]
    defined = event_type(event_name)
    if defined and defined.speech:
        keys.append(defined.speech)
    return keys


def define_text(source: str, sql: str | Callable[[], str]) -> None:
    """Register a source's text: a SELECT of ``id, title, body`` per entity, or a function that returns it."""
    _texts[source] = sql
    text_queries.cache_clear()


@cache
def text_queries() -> dict[str, str]:
    """Return the SELECT of every source by name."""
    return {source: sql() if callable(sql) else sql for source, sql in _texts.items()}
