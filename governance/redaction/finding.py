"""Which events a selection means, and what each would lose."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from governance.redaction.matching import Find, Matcher
from governance.redaction.schemas import Place, RedactionSelect
from governance.redaction.truncate import field_names, fit
from memories import selectors
from memories.events import TAG_CREATED
from memories.schemas import MemorySearch
from memoryhub.core import clock
from memoryhub.core.events.event_types import event_type
from memoryhub.core.log import stands_alone
from memoryhub.core.log.digests import canonical_json
from memoryhub.core.log.read import last_erasure
from memoryhub.core.secrets.shapes import TEXT, Shape, payload_shape
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS, TEXTS, position_of
from sessions_app.spooled import Spooled

_AT_ONCE = 1_000
_SEARCHED = 100
_IDENTITIES = frozenset({"session_id", "turn_id", "stream_id"})
"""Fields that name something as the headers do, which stay too. What is ``Generated`` stays by its type."""


@dataclass(frozen=True, slots=True)
class Event:
    """An event as far as redaction looks at it."""

    position: int
    type: str
    stream: str
    occurred_at: str
    payload: str


@dataclass(frozen=True, slots=True)
class Found:
    """An event that loses something."""

    event: Event
    left: Any
    """The payload without it."""
    finds: list[Find]


@dataclass(slots=True)
class Findings:
    """All that a selection finds."""

    erasure: int
    """The last event that told of an erasure or a redaction when this was found."""
    found: list[Found] = field(default_factory=list)
    stay: set[tuple[str, str]] = field(default_factory=set)
    """Types of events, each with a field that holds it and is of a fixed form."""

    @property
    def positions(self) -> list[int]:
        """The events that lose something."""
        return [each.event.position for each in self.found]

    @property
    def count(self) -> int:
        """How many finds there are."""
        return sum(len(find.spans) for each in self.found for find in each.finds)

    def payloads(self) -> dict[int, Any]:
        """Return what is left of each event's payload."""
        return {each.event.position: each.left for each in self.found}

    def texts(self) -> set[str]:
        """Return what is taken out."""
        return {text for each in self.found for find in each.finds for text in find.texts}

    def token(self, spooled: Spooled) -> str:
        """Return a token of exactly this: which events, also in the spool, and what is left of them."""
        digest = hashlib.sha256(b"redact")
        for each in self.found:
            digest.update(f"{each.event.position} {canonical_json(each.left)}\n".encode())
        digest.update("\n".join(sorted(spooled.lines)).encode())
        return digest.hexdigest()[:16]


def find_places(selection: RedactionSelect, *, progress: Callable[[int], None] = lambda _: None) -> Findings:
    """Return what the selection finds in the current store's log; reads every event that it may mean once.

    Args:
        selection: what to look for, and where.
        progress: called with the position of each event that is read.
    """
    matcher, findings = Matcher(selection), Findings(last_erasure())
    for event in _events(selection):
        progress(event.position)
        _look(matcher, event, findings)
    return findings


def _look(matcher: Matcher, event: Event, findings: Findings) -> None:
    payload = json.loads(event.payload)
    text = {name: value for name, value in payload.items() if _is_text(event.type, name)}
    left, finds = matcher.clean(text, field_names(event.type), _shape(event.type))
    if not finds:
        return
    left = {**payload, **left}
    finds, stay = fit(event.type, payload, left, finds)
    findings.stay |= {(event.type, name) for name in stay}
    if finds:
        findings.found.append(Found(event, left, _numbered(event, payload, left, finds)))


def _shape(type_name: str) -> Shape:
    kind = event_type(type_name)
    return payload_shape(kind.schema) if kind else TEXT


def _is_text(type_name: str, field_name: str) -> bool:
    if _removes_text(type_name):  # of what is gone, only the reason that a person gave is anybody's text
        return field_name == "reason"
    return field_name not in _IDENTITIES


def _removes_text(type_name: str) -> bool:
    kind = event_type(type_name)
    return kind is not None and kind.removes_text


def _numbered(event: Event, before: dict[str, Any], left: dict[str, Any], finds: list[Find]) -> list[Find]:
    """Number the names that only one thing may have: two that lose their text would be the same."""
    name = "name" if event.type == TAG_CREATED.name else "topic_key"
    if left.get(name) == before.get(name):
        return finds
    left[name] = f"{left[name]} {event.stream.partition(':')[2]}"
    return [replace(find, after=left[name]) if find.field == name else find for find in finds]


def selected_events(selection: RedactionSelect) -> list[Event]:
    """Return the events of what ``whole`` selects; where one cannot go alone, all those of its stream."""
    selected = [event for event in _events(selection) if not _removes_text(event.type)]
    streams = sorted({event.stream for event in selected if not stands_alone(event.type)})
    rest = (Event(*row) for row in rows.fetch(_OF_STREAMS, [json.dumps(streams)]))
    every = {event.position: event for event in [*selected, *rest]}
    return [every[position] for position in sorted(every)]


_COLUMNS = "position, event_type, stream_id, occurred_at, payload_json"
_OF_STREAMS = f"SELECT {_COLUMNS} FROM raw_events WHERE payload_json IS NOT NULL AND stream_id IN {TEXTS}"


def _events(selection: RedactionSelect) -> Iterator[Event]:
    conditions, parameters = _conditions(selection)
    sql = (
        f"SELECT {_COLUMNS} FROM raw_events "
        f"WHERE position > %s AND {' AND '.join(conditions)} ORDER BY position LIMIT {_AT_ONCE}"
    )
    last = 0
    while batch := rows.fetch(sql, [last, *parameters]):
        yield from (Event(*row) for row in batch)
        last = batch[-1][0]


def _conditions(selection: RedactionSelect) -> tuple[list[str], list[Any]]:
    conditions, parameters = ["payload_json IS NOT NULL"], []
    if selection.ids or selection.search:
        conditions.append(_OF_ENTITIES)
        parameters += [json.dumps(_ids(selection))] * 2
    if selection.event_types:
        conditions.append(f"event_type IN {TEXTS}")
        parameters.append(json.dumps(selection.event_types))
    if selection.text and not selection.ignore_case:
        texts = selection.texts()
        conditions.append(f"({' OR '.join([f'{_PLACE} > 0'] * len(texts))})")
        parameters += [json.dumps(text, ensure_ascii=False)[1:-1] for text in texts]
    return conditions, parameters


_PLACE = position_of("%s", "payload_json")
_OF_ENTITIES = (
    f"(position IN {IDS} OR stream_id IN (SELECT stream_id FROM raw_events WHERE stream_seq = 1 AND position IN {IDS}))"
)
"""An id is the position of the first event of its stream; a message's is in the middle of its turn's."""


def _ids(selection: RedactionSelect) -> Sequence[int]:
    if not selection.search:
        return selection.ids
    question = MemorySearch(query=selection.search, limit=_SEARCHED)
    found = [hit["id"] for hit in selectors.search(command=question, whole_store=True).results]
    return [each for each in found if not selection.ids or each in selection.ids]


_MOST = 100
_AROUND = 60
_LONGEST = 400
_NEAR = 24


def places_of(findings: Findings) -> list[Place]:
    """Return the first hundred places."""
    every = ((found, find) for found in findings.found for find in found.finds)
    return [_place(found, find) for (found, find), _ in zip(every, range(_MOST), strict=False)]


def whole_places(events: list[Event]) -> list[Place]:
    """Return events that go altogether as places."""
    return [_whole(event) for event in events[:_MOST]]


def _place(found: Found, find: Find) -> Place:
    start, end = _window(find)
    inside = [(left - start, right - start) for left, right in find.spans if start <= left and right <= end]
    before = find.before[start:end]
    return Place(
        position=found.event.position,
        event_type=found.event.type,
        stream=found.event.stream,
        occurred_at=clock.from_text(found.event.occurred_at),
        field=find.field,
        before=before,
        after=_after(find, start, end),
        finds=len(find.spans),
        marked=inside or [(0, len(before))],
    )


def _window(find: Find) -> tuple[int, int]:
    """Return the part of the text around the finds, from word to word; where they are far apart, around the first."""
    text, (first, last) = find.before, find.spans[0]
    start = _to_space(text, max(0, first - _AROUND), -1)
    last = max((right for _, right in find.spans if right <= start + _LONGEST - _AROUND), default=last)
    return start, _to_space(text, min(len(text), last + _AROUND, start + _LONGEST), 1)


def _to_space(text: str, at: int, step: int) -> int:
    """Return the next place that parts two words, if one is near."""
    for place in range(at, at + step * _NEAR, step):
        if place <= 0 or place >= len(text) or text[place if step > 0 else place - 1].isspace():
            return max(0, min(place, len(text)))
    return at


def _after(find: Find, start: int, end: int) -> str:
    """Return what is left of the window: what follows it in the text is as long before as after."""
    tail = len(find.before) - end
    return (
        find.after[start : len(find.after) - tail] if _tail_is_same(find, end) else find.after[start : start + _LONGEST]
    )


def _tail_is_same(find: Find, end: int) -> bool:
    return all(right <= end for _, right in find.spans)


def _whole(event: Event) -> Place:
    text = " ".join(texts_of(event))[:_LONGEST]
    return Place(
        position=event.position,
        event_type=event.type,
        stream=event.stream,
        occurred_at=clock.from_text(event.occurred_at),
        field="",
        before=text,
        after="",
        finds=1,
        marked=[(0, len(text))],
    )


def texts_of(event: Event) -> list[str]:
    """Return every text that an event holds, names of fields aside."""
    return _texts(json.loads(event.payload))


def _texts(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for each in value.values() for text in _texts(each)]
    return [text for each in value for text in _texts(each)] if isinstance(value, list) else []
