"""How an app says what of it can be found: which event makes which document, and where its text is.

The index itself is built above, from these declarations.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from memoryhub.core.event_types import EventType, Speech, event_type
from memoryhub.core.projection import Event


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
AmongThem = Callable[[Sequence[int]], Collection[int]]
Weights = Callable[[Sequence[int]], Mapping[int, float]]
Successors = Callable[[Sequence[int]], Mapping[int, Sequence[int]]]
Notes = Callable[[Sequence[int]], Mapping[int, str]]


@dataclass(frozen=True, slots=True)
class Asking:
    """How a question asks for a source."""

    source: str
    pattern: re.Pattern[str]
    """What such a question has in it."""
    words: re.Pattern[str]
    """The words of such a question that say where to look, not what for."""
    weight: float
    """What is put on the scores of the source's documents, where a question asks so."""


_makers: dict[str, list[DocumentMaker]] = {}
_texts: dict[str, Callable[[], str]] = {}
_askings: list[Asking] = []
_demotions: list[tuple[AmongThem, float, str]] = []
_weights: dict[str, Weights] = {}
_successors: list[Successors] = []
_notes: dict[str, Notes] = {}


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


def define_asking(source: str, *, pattern: str, words: str, weight: float) -> None:
    """Register how a question asks for a source; the patterns ignore case. See ``Asking``."""
    _askings.append(Asking(source, re.compile(pattern, re.IGNORECASE), re.compile(words, re.IGNORECASE), weight))


def askings(question: str) -> list[Asking]:
    """Return the ways in which this question asks for a source."""
    return [asking for asking in _askings if asking.pattern.search(question)]


def define_demotion(among: AmongThem, weight: float, *, why: str) -> None:
    """Register that some of what is found counts less: ``among`` picks it, ``weight`` is put on its score.

    Args:
        among: returns those of the ids that it is about.
        weight: below 1.
        why: one word for it, which such hits are told with.
    """
    _demotions.append((among, weight, why))


def demotions() -> list[tuple[AmongThem, float, str]]:
    """Return what counts less, each with its weight and the word for it."""
    return list(_demotions)


def define_weights(name: str, weights: Weights) -> None:
    """Register weights, by id, that are put on scores for one reason; what is left out keeps its score."""
    _weights[name] = weights


def weights_of(ids: Sequence[int]) -> dict[str, Mapping[int, float]]:
    """Return the weights that the ids have, by reason and id."""
    return {name: weights(ids) for name, weights in _weights.items()} if ids else {}


def define_successors(successors: Successors) -> None:
    """Register what stands instead of some of what is found: it is found by the same words, then."""
    _successors.append(successors)


def successors_of(ids: Sequence[int]) -> dict[int, list[int]]:
    """Return what stands instead of those of the ids that no longer do."""
    found: dict[int, list[int]] = {}
    for successors in _successors if ids else ():
        for each, instead in successors(ids).items():
            found.setdefault(each, []).extend(instead)
    return found


def define_notes(source: str, notes: Notes) -> None:
    """Register what a hit of a source says of itself beside its text, by id: what replaced it, what proves it."""
    _notes[source] = notes


def notes_of(source: str, ids: Sequence[int]) -> Mapping[int, str]:
    """Return what hits of a source say of themselves, by id."""
    return _notes[source](ids) if source in _notes and ids else {}
