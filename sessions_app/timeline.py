"""Events as a person reads them: days, the turns of each day, and the entries of each turn."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from itertools import groupby
from typing import Any

from django.db.models import Min, Q, Sum
from django.db.models.functions import Length

from memoryhub.core import clock, log
from memoryhub.core.events.event_types import Speech, event_type, names_of_speech
from memoryhub.core.log import EventQuerySet, StoredEvent
from memoryhub.core.log.read import entity_of, main_text
from memoryhub.core.paging import BYTES_PER_TOKEN
from memoryhub.core.text import first_line
from sessions_app.events import TURN_BEGAN, TURN_ENDED
from sessions_app.models import Session, Turn, TurnStatus

# Events per page.
PAGE = 200
# The user's prompt is among the first events of a turn.
_PROMPT_WITHIN = 8
# Payload fields with the time at which an imported event happened
_TIMES = ("written_at", "began_at", "started_at", "ended_at")


@dataclass(frozen=True, slots=True)
class TimelineItem:
    position: int
    type: str
    occurred_at: datetime
    actor: str
    source: str
    stream_id: str
    digest: str
    title: str
    text: str
    # The payload without `text`.
    fields: dict[str, Any]
    is_erased: bool

    @property
    def thing(self) -> str:
        return self.stream_id.partition(":")[0]

    @property
    def exit_code(self) -> int | None:
        return self.fields.get("exit_code")

    @property
    def failed(self) -> bool:
        type_ = event_type(self.type)
        return bool(self.exit_code or self.fields.get("is_error") or (type_ and type_.is_failure))


@dataclass(slots=True)
class TimelinePart:
    """The entries of one turn on one day, or entries without a turn."""

    session_id: str
    turn: Turn | None
    prompt: str = ""
    entries: list[TimelineItem] = field(default_factory=list)
    is_last: bool = False
    # All texts of the turn, estimated
    tokens: int = 0
    # Percent of the longest turn of the page, and of the one with most tokens
    time_share: int = 0
    token_share: int = 0


@dataclass(frozen=True, slots=True)
class Day:
    date: date
    parts: list[TimelinePart]


@dataclass(slots=True)
class TimelinePage:
    """A page of a timeline, oldest first, with the cursors of its neighbours."""

    days: list[Day]
    first: int = 0
    last: int = 0
    count: int = 0
    # `before` of the previous page; None on the first.
    earlier: int | None = None
    # `after` of the next page; None on the last.
    later: int | None = None


def session_events(session: Session) -> EventQuerySet:
    """Return the events of a session and those that started, paused or ended it."""
    stream = log.events().of_stream(f"session:{session.session_id}").order_by().values("position")
    events = log.events().filter(Q(session_id=session.session_id) | Q(position__in=stream))
    return events.without_undone()


def turn_events(turn: Turn) -> EventQuerySet:
    events = log.events().of_turn(turn.session_id, turn.turn_id).window(after=turn.id - 1)
    if turn.status == TurnStatus.OPEN:
        return events
    # The turn's own stream ends with it. Without this bound, SQL would scan the rest of the session.
    stream = log.events().filter(position=turn.id).order_by().values("stream_id")
    last = log.events().filter(stream_id__in=stream).order_by("-stream_seq").values("position")[:1]
    return events.filter(position__lte=last)


def timeline_page(
    events: EventQuerySet, *, before: int | None = None, after: int | None = None, size: int = PAGE
) -> TimelinePage:
    """Return a page of ``events``: the last one, or the one before or after a position. ``after`` wins."""
    if after is not None:
        ordered = events.filter(position__gt=after).order_by("position")
    elif before is not None:
        ordered = events.filter(position__lt=before).order_by("-position")
    else:
        ordered = events.order_by("-position")
    # Sort positions first, so that payloads of one page only are read.
    positions = list(ordered.values_list("position", flat=True)[: size + 1])
    page = list(log.events().at(positions[:size]))
    if not page:
        return TimelinePage([])
    first, last = page[0].position, page[-1].position
    result = TimelinePage(days=_days(page), first=first, last=last, count=len(page))
    has_more = len(positions) > size
    if after is None:
        has_earlier = has_more
        has_later = before is not None and events.filter(position__gt=last).exists()
    else:
        has_earlier = bool(after) and events.filter(position__lt=first).exists()
        has_later = has_more
    if has_earlier:
        result.earlier = first
    if has_later:
        result.later = last
    return result


def _days(events: list[StoredEvent]) -> list[Day]:
    names = {(event.session_id, event.turn_id) for event in events if event.turn_id}
    session_ids, turn_ids = {name for name, _ in names}, {name for _, name in names}
    matches = Turn.objects.filter(session_id__in=session_ids, turn_id__in=turn_ids)
    turns = {(turn.session_id, turn.turn_id): turn for turn in matches}
    prompts = first_prompts(turns.values())
    titles = _titles(events)
    days = []
    for day, of_day in groupby(events, key=lambda event: clock.day(happened_at(event))):
        days.append(Day(date.fromisoformat(day), _parts(of_day, turns, prompts, titles)))
    with_turn = [part for day in days for part in day.parts if part.turn]
    if with_turn:
        with_turn[-1].is_last = True
        _measure(with_turn)
    return days


def _measure(parts: list[TimelinePart]) -> None:
    turns = {part.turn.id: part.turn for part in parts if part.turn}
    events = log.events().of_session(*{turn.session_id for turn in turns.values()})
    events = events.filter(turn_id__in={turn.turn_id for turn in turns.values()}).order_by()
    sizes: dict[tuple[str, str], int] = {}
    for row in events.values("session_id", "turn_id").annotate(size=Sum(Length("payload_json"))):
        sizes[row["session_id"], row["turn_id"]] = row["size"] or 0
    tokens = {id_: sizes.get((turn.session_id, turn.turn_id), 0) // BYTES_PER_TOKEN for id_, turn in turns.items()}
    now = clock.now()
    # Not below zero: the clock may have been set back meanwhile
    seconds = {id_: max(0.0, ((turn.ended_at or now) - turn.began_at).total_seconds()) for id_, turn in turns.items()}
    longest, most = max(seconds.values()) or 1, max(tokens.values()) or 1
    for part in parts:
        if part.turn:
            part.tokens = tokens[part.turn.id]
            part.token_share = round(100 * part.tokens / most)
            part.time_share = round(100 * seconds[part.turn.id] / longest)


def _parts(
    events: Iterable[StoredEvent], turns: dict[tuple[str, str], Turn], prompts: dict[int, str], titles: dict[int, str]
) -> list[TimelinePart]:
    parts: list[TimelinePart] = []
    by_turn: dict[int, TimelinePart] = {}
    for event in events:
        turn = turns.get((event.session_id, event.turn_id))
        part: TimelinePart | None = None
        if turn:
            part = by_turn.get(turn.id)
        elif parts and parts[-1].turn is None:
            part = parts[-1]
        if part is None:
            part = TimelinePart(event.session_id, turn)
            parts.append(part)
            if turn:
                part.prompt = prompts.get(turn.id, "")
                by_turn[turn.id] = part
        if not _is_frame(event):
            part.entries.append(_entry(event, titles.get(entity_of(event), "")))
    return parts


# The turn's own line shows its start, and its end without a summary.
def _is_frame(event: StoredEvent) -> bool:
    if event.event_type == TURN_ENDED.name:
        return not json.loads(event.payload_json or "{}").get("summary")
    return event.event_type == TURN_BEGAN.name


def entries_of(events: list[StoredEvent]) -> list[TimelineItem]:
    titles = _titles(events)
    return [_entry(event, titles.get(entity_of(event), "")) for event in events]


def happened_at(event: StoredEvent) -> str:
    """Return when something happened that another tool recorded before it was imported, else when it was appended."""
    declared = event_type(event.event_type)
    if declared is None:
        return event.occurred_at
    payload = json.loads(event.payload_json or "{}")
    names = [name for name in _TIMES if name in declared.schema.model_fields]  # not a client's own fields
    return min([event.occurred_at, *(str(payload[name]) for name in names if payload.get(name))])


def _entry(event: StoredEvent, title: str) -> TimelineItem:
    payload = json.loads(event.payload_json or "{}")
    text, fields = split_text(event.event_type, payload)
    return TimelineItem(
        position=event.position,
        type=event.event_type,
        occurred_at=clock.from_text(happened_at(event)),
        actor=event.actor,
        source=event.source,
        stream_id=event.stream_id,
        digest=event.chain_digest,
        title=event_title(event.event_type, payload, title),
        text=text,
        fields=fields,
        is_erased=event.payload_json is None,
    )


def first_prompts(turns: Iterable[Turn]) -> dict[int, str]:
    """Map turn ids to the first line of the user's prompt; turns without one are left out."""
    begins = dict(log.events().at([turn.id for turn in turns]).values_list("stream_id", "position"))
    prompts = log.events().of_stream(*begins).of_type(*names_of_speech(Speech.PROMPT))
    latest_first = prompts.filter(stream_seq__lte=_PROMPT_WITHIN).order_by("-position")
    firsts = {event.stream_id: event for event in latest_first}
    return {begins[stream]: _event_title(event) for stream, event in firsts.items() if event.payload_json is not None}


def session_titles(sessions: Iterable[Session]) -> dict[str, str]:
    """Map session names to titles: the purpose, else the first prompt, else ""."""
    titles = {session.session_id: first_line(session.purpose) for session in sessions}
    unnamed = [name for name, title in titles.items() if not title]
    firsts = Turn.objects.filter(session_id__in=unnamed).values("session_id").annotate(first=Min("id")).order_by()
    first_turns = list(Turn.objects.filter(id__in=[row["first"] for row in firsts]))
    prompts = first_prompts(first_turns)
    return titles | {turn.session_id: prompts.get(turn.id, "") for turn in first_turns}


# Titles from the events that created the entities, by id.
def _titles(events: list[StoredEvent]) -> dict[int, str]:
    ids = {entity_of(event) for event in events} - {event.position for event in events}
    created = log.events().at(ids)
    here = [event for event in events if entity_of(event) == event.position]
    return {event.position: _event_title(event) for event in [*created, *here]}


def _event_title(event: StoredEvent) -> str:
    return event_title(event.event_type, json.loads(event.payload_json or "{}"), "")


# Payload fields that hold a readable text, the most informative first.
_TEXTS = ("content", "output", "change", "summary", "outcome", "detail", "message", "description")


def event_title(type_name: str, payload: Mapping[str, Any], title: str) -> str:
    """Return one line that describes an event; ``title`` is that of the entity that it belongs to, if known."""
    if not payload:
        return title
    declared = event_type(type_name)
    if declared and declared.about:
        return first_line(declared.about(payload))
    own_title = payload.get("title")
    if isinstance(own_title, str) and own_title:
        title = own_title
    return first_line(title or main_text(payload))


def split_text(type_name: str, payload: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the payload's main text, and the payload without it."""
    line = event_title(type_name, payload, "")
    for name in _TEXTS:
        text = payload.get(name)
        if isinstance(text, str) and text.strip() not in ("", line):
            return text, {key: value for key, value in payload.items() if key != name}
    return "", dict(payload)
