"""The events that a selection matches, what each of them loses, and past redactions."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, starmap
from typing import Any

from governance.models import Redaction
from governance.redaction.matching import Find, Matcher, field_names, fit
from governance.redaction.schemas import Place, RedactionSelect
from memories import selectors
from memories.events import TAG_CREATED
from memories.schemas import MemorySearch
from memoryhub.core import clock
from memoryhub.core.events.event_types import event_type
from memoryhub.core.log import stands_alone
from memoryhub.core.log.digests import canonical_json
from memoryhub.core.log.read import last_erasure
from memoryhub.core.paging import newest_first
from memoryhub.core.schemas import Listing, Paging
from memoryhub.core.secrets.cleaning import is_repeatable
from memoryhub.core.secrets.sanitize import TEXT, payload_shape
from memoryhub.core.slugs import NO_NAMES, DerivedNames
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS, TEXTS, position_of
from memoryhub.core.text import counted
from sessions_app.spooled import Spooled


class RedactionList(Paging):
    """List redactions, the latest first."""


def list_redactions(*, command: RedactionList) -> Listing:
    """Return a page of redactions, latest first."""
    return newest_first(Redaction.objects.all(), command, partial(map, view), redaction_line)


def view(redaction: Redaction) -> dict[str, Any]:
    """Return a redaction as JSON data."""
    names = ("id", "what", "reason", "events", "actor", "source")
    return {**{name: getattr(redaction, name) for name in names}, "redacted_at": clock.to_text(redaction.redacted_at)}


def redaction_line(item: dict[str, Any]) -> str:
    """Return a redaction as one line."""
    reason = f": {item['reason']}" if item["reason"] else ""
    events = counted(item["events"], "event")
    return f"#{item['id']} {clock.day(item['redacted_at'])} {item['what']}, {events}, by {item['actor']}{reason}"


_AT_ONCE = 1_000
_SEARCHED = 100
# Names that the headers repeat, which stay. Fields declared ``Generated`` stay by their type.
_IDENTITIES = frozenset({"session_id", "turn_id", "stream_id"})
_TOPIC = "topic_key"
_DIGEST = re.compile(r"~[0-9a-f]{12}(?=~\d+\Z|\Z)")


@dataclass(frozen=True, slots=True)
class EventText:
    """An event with its payload as text."""

    position: int
    type: str
    stream: str
    occurred_at: str
    payload: str


@dataclass(frozen=True, slots=True)
class EventMatch:
    """What a redaction finds in an event, and what it leaves."""

    event: EventText
    # The payload without the matched text
    cleaned: Any
    finds: list[Find]


@dataclass(slots=True)
class Findings:
    """The matches of a selection in the log."""

    # Position of the last erasure or redaction at the time of the search
    erasure: int
    matches: list[EventMatch] = field(default_factory=list)
    # (event type, field) pairs whose fixed form does not allow a replacement
    stay: set[tuple[str, str]] = field(default_factory=set)
    # The names that are derived from the texts
    names: DerivedNames = NO_NAMES

    @property
    def positions(self) -> list[int]:
        return [match.event.position for match in self.matches]

    @property
    def count(self) -> int:
        return sum(len(find.spans) for find in self.finds())

    def finds(self) -> Iterator[Find]:
        for match in self.matches:
            yield from match.finds

    def payloads(self) -> dict[int, Any]:
        return {match.event.position: match.cleaned for match in self.matches}

    def texts(self) -> set[str]:
        return set(chain.from_iterable(find.texts for find in self.finds()))

    def topics(self) -> dict[str, int]:
        """Return the topic keys that lose a text, with the ids of their memories."""
        topics = {}
        for match in self.matches:
            number = match.event.stream.partition(":")[2]
            if number.isdecimal() and any(find.field == _TOPIC for find in match.finds):
                topics[json.loads(match.event.payload)[_TOPIC]] = int(number)
        return topics

    # Covers the events, what is left of them, and the spool
    def token(self, spooled: Spooled) -> str:
        digest = hashlib.sha256(b"redact")
        for match in self.matches:
            digest.update(f"{match.event.position} {canonical_json(match.cleaned)}\n".encode())
        digest.update("\n".join(sorted(spooled.lines)).encode())
        return digest.hexdigest()[:16]


def find_places(selection: RedactionSelect, *, progress: Callable[[int], None] | None = None) -> Findings:
    """Search the current store's log for the selection, and for names that the hub derived from its text.

    Args:
        selection: what to look for, and where.
        progress: called with the position of each event that is read.
    """
    erasure = last_erasure()
    findings = _search_log(selection, Matcher(selection), erasure, progress)
    if selection.text is not None and not selection.ignore_case:
        return findings
    # The texts are known only now: look again for the names derived from them
    texts = findings.texts()
    if selection.rules:  # a password such as "admin" is no secret elsewhere
        texts = set(filter(is_repeatable, texts))
    names = DerivedNames([*selection.texts(), *texts])
    return _search_log(selection, Matcher(selection, names), erasure) if names else findings


def _search_log(
    selection: RedactionSelect, matcher: Matcher, erasure: int, progress: Callable[[int], None] | None = None
) -> Findings:
    findings = Findings(erasure, names=matcher.names)
    for event in _events(selection, matcher.names):
        if progress:
            progress(event.position)
        _look(matcher, event, findings)
    return findings


def _look(matcher: Matcher, event: EventText, findings: Findings) -> None:
    payload = json.loads(event.payload)
    text = {name: value for name, value in payload.items() if _is_text(event.type, name)}
    kind = event_type(event.type)
    shape = payload_shape(kind.schema) if kind else TEXT
    by_pack_only = kind is not None and kind.by_pack_only
    cleaned, finds = matcher.clean(text, field_names(event.type), shape, by_pack_only=by_pack_only)
    if not finds:
        return
    cleaned = {**payload, **cleaned}
    finds, stay = fit(event.type, payload, cleaned, finds)
    findings.stay |= {(event.type, name) for name in stay}
    if finds:
        findings.matches.append(EventMatch(event, cleaned, _numbered(event, payload, cleaned, finds)))


def _is_text(type_name: str, field_name: str) -> bool:
    if _removes_text(type_name):  # in an erasure, only the reason is a person's text
        return field_name == "reason"
    return field_name not in _IDENTITIES


def _removes_text(type_name: str) -> bool:
    kind = event_type(type_name)
    return kind is not None and kind.removes_text


# Numbered, because names are unique, and two that lose their text would become equal
def _numbered(event: EventText, before: dict[str, Any], after: dict[str, Any], finds: list[Find]) -> list[Find]:
    name = "name" if event.type == TAG_CREATED.name else _TOPIC
    if after.get(name) == before.get(name):
        return finds
    # Without the digest of a long key, which has the text
    after[name] = f"{_DIGEST.sub('', after[name])} {event.stream.partition(':')[2]}"
    return [replace(find, after=after[name]) if find.field == name else find for find in finds]


def selected_events(selection: RedactionSelect) -> list[EventText]:
    """Return the events that ``whole`` erases: the whole stream of any event that can't be erased alone."""
    selected = [event for event in _events(selection, NO_NAMES) if not _removes_text(event.type)]
    streams = sorted({event.stream for event in selected if not stands_alone(event.type)})
    by_position = {event.position: event for event in selected}
    for row in rows.fetch(_OF_STREAMS, [json.dumps(streams)]):
        by_position[row[0]] = EventText(*row)
    return sorted(by_position.values(), key=lambda event: event.position)


_COLUMNS = "position, event_type, stream_id, occurred_at, payload_json"
_OF_STREAMS = f"SELECT {_COLUMNS} FROM raw_events WHERE payload_json IS NOT NULL AND stream_id IN {TEXTS}"


def _events(selection: RedactionSelect, names: DerivedNames) -> Iterator[EventText]:
    conditions, parameters = _conditions(selection, names)
    sql = (
        f"SELECT {_COLUMNS} FROM raw_events "
        f"WHERE position > %s AND {' AND '.join(conditions)} ORDER BY position LIMIT {_AT_ONCE}"
    )
    last = 0
    while batch := rows.fetch(sql, [last, *parameters]):
        yield from starmap(EventText, batch)
        last = batch[-1][0]


def _conditions(selection: RedactionSelect, names: DerivedNames) -> tuple[list[str], list[Any]]:
    conditions, parameters = ["payload_json IS NOT NULL"], []
    if selection.ids or selection.search:
        conditions.append(_OF_ENTITIES)
        parameters += [json.dumps(_ids(selection))] * 2
    if selection.event_types:
        conditions.append(f"event_type IN {TEXTS}")
        parameters.append(json.dumps(selection.event_types))
    if selection.text and not selection.ignore_case:
        texts = [*selection.texts(), *names.landmarks]
        conditions.append(f"({' OR '.join([f'{_PLACE} > 0'] * len(texts))})")
        parameters += [json.dumps(text, ensure_ascii=False)[1:-1] for text in texts]
    return conditions, parameters


_PLACE = position_of("%s", "payload_json")
# An id is the position of the first event of its stream; a message's is inside its turn's stream
_OF_ENTITIES = (
    f"(position IN {IDS} OR stream_id IN (SELECT stream_id FROM raw_events WHERE stream_seq = 1 AND position IN {IDS}))"
)


def _ids(selection: RedactionSelect) -> Sequence[int]:
    if not selection.search:
        return selection.ids
    question = MemorySearch(query=selection.search, limit=_SEARCHED)
    hits = selectors.search(command=question, whole_store=True).results
    return [hit["id"] for hit in hits if not selection.ids or hit["id"] in selection.ids]


_MOST = 100
_AROUND = 60
_LONGEST = 400


def places_of(findings: Findings) -> list[Place]:
    """Return the first 100 strings with matches."""
    places: list[Place] = []
    for match in findings.matches:
        places += [_place(match, find) for find in match.finds[: _MOST - len(places)]]
        if len(places) == _MOST:
            break
    return places


def whole_places(events: list[EventText]) -> list[Place]:
    """Return the beginnings of the first 100 events that are erased whole."""
    places = []
    for event in events[:_MOST]:
        text = " ".join(texts_of(event))[:_LONGEST]
        places.append(_place_in(event, field="", before=text, after="", finds=1, marked=[(0, len(text))]))
    return places


def _place(match: EventMatch, find: Find) -> Place:
    start, end = _window(find)
    inside = [(first - start, right - start) for first, right in find.spans if start <= first and right <= end]
    before = find.before[start:end]
    return _place_in(
        match.event,
        field=find.field,
        before=before,
        after=_after(find, start, end),
        finds=len(find.spans),
        marked=inside or [(0, len(before))],
    )


def _place_in(event: EventText, **fields: Any) -> Place:
    occurred_at = clock.from_text(event.occurred_at)
    return Place(position=event.position, event_type=event.type, stream=event.stream, occurred_at=occurred_at, **fields)


# The part of the text around the matches; if they are far apart, around the first
def _window(find: Find) -> tuple[int, int]:
    first, last = find.spans[0]
    start = max(0, first - _AROUND)
    last = max((right for _, right in find.spans if right <= start + _LONGEST - _AROUND), default=last)
    return start, min(len(find.before), last + _AROUND, start + _LONGEST)


# Text behind the window has the same length before and after
def _after(find: Find, start: int, end: int) -> str:
    if any(right > end for _, right in find.spans):
        return find.after[start : start + _LONGEST]
    return find.after[start : len(find.after) - (len(find.before) - end)]


def texts_of(event: EventText) -> list[str]:
    """Return all strings of an event's payload."""
    return list(_strings_in(json.loads(event.payload)))


def _strings_in(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _strings_in(item)
