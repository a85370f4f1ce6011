"""What a person sees of each place before she confirms."""

from __future__ import annotations

import json

from governance.redaction.finding import Event, Findings, Found
from governance.redaction.matching import Find
from governance.redaction.schemas import Place
from memoryhub.core import clock

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
