"""Events as a person reads them: days, the turns of each day, and the entries of each turn."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import date, datetime
from itertools import groupby
from typing import Any

from django.db.models import Count, Min, Q, QuerySet, Sum
from django.db.models.expressions import RawSQL
from django.db.models.functions import Length

from memoryhub.core import clock
from memoryhub.core.events.event_types import Speech, event_type, names_of_speech
from memoryhub.core.events.projection import void_sql
from memoryhub.core.log.read import entity_of
from memoryhub.core.models import RawEvent
from memoryhub.core.paging import BYTES_PER_TOKEN
from memoryhub.core.stores import rows
from memoryhub.core.text import first_line
from sessions_app.event_summaries import about, body
from sessions_app.events.sessions import TURN_BEGAN, TURN_ENDED
from sessions_app.models import Iteration, Session, Turn, TurnStatus

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
    rest: dict[str, Any]
    is_erased: bool

    @property
    def thing(self) -> str:
        """The kind of entity: ``memory``, ``commit``, ``turn`` and so on."""
        return self.stream_id.partition(":")[0]

    @property
    def exit_code(self) -> int | None:
        return self.rest.get("exit_code")

    @property
    def failed(self) -> bool:
        type_ = event_type(self.type)
        return bool(self.exit_code or self.rest.get("is_error") or (type_ and type_.is_failure))


@dataclass(slots=True)
class TimelinePart:
    """The entries of one turn on one day, or entries without a turn."""

    session_id: str
    turn: Turn | None
    prompt: str
    entries: list[TimelineItem] = field(default_factory=list)
    is_last: bool = False
    # Of all texts of the turn, estimated
    tokens: int = 0
    # Percent of the longest turn of the page, and of the one with most tokens
    time_share: int = 0
    token_share: int = 0


@dataclass(frozen=True, slots=True)
class Day:
    date: date
    parts: list[TimelinePart]


@dataclass(frozen=True, slots=True)
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


def session_events(session: Session) -> QuerySet[RawEvent]:
    """Return the events of a session and those that started, paused or ended it."""
    stream = RawEvent.objects.filter(stream_id=f"session:{session.session_id}").values("position")
    events = RawEvent.objects.filter(Q(session_id=session.session_id) | Q(position__in=stream))
    return events.exclude(position__in=RawSQL(rows.rendered(void_sql()), []))  # noqa: S611 - a constant


def turn_events(turn: Turn) -> QuerySet[RawEvent]:
    events = RawEvent.objects.filter(session_id=turn.session_id, turn_id=turn.turn_id, position__gte=turn.id)
    if turn.status == TurnStatus.OPEN:
        return events
    # The turn's own stream ends with it. Without this bound, SQL would scan the rest of the session.
    stream = RawEvent.objects.filter(position=turn.id).values("stream_id")
    return events.filter(
        position__lte=RawEvent.objects.filter(stream_id__in=stream).order_by("-stream_seq").values("position")[:1]
    )


def iteration_events(iteration: Iteration) -> QuerySet[RawEvent]:
    """Return the events from an iteration's start to its end."""
    events = RawEvent.objects.filter(position__gte=iteration.id)
    return events.filter(position__lte=iteration.end_position) if iteration.end_position else events


def count_types(events: QuerySet[RawEvent]) -> dict[str, int]:
    counted = events.order_by().values("event_type").annotate(events=Count("position"))
    return dict(counted.values_list("event_type", "events"))


def timeline_page(
    events: QuerySet[RawEvent], *, before: int | None = None, after: int | None = None, size: int = PAGE
) -> TimelinePage:
    """Return a page of ``events``: the last one, or the one before or after a position.

    Args:
        events: in any order.
        before: the newest events below this position.
        after: the oldest events above this position; overrides ``before``.
        size: events per page.
    """
    page, more = _cut(events, before, after, size)
    if not page:
        return TimelinePage([])
    first, last = page[0].position, page[-1].position
    earlier = more if after is None else bool(after) and events.filter(position__lt=first).exists()
    later = more if after is not None else before is not None and events.filter(position__gt=last).exists()
    return TimelinePage(
        days=_days(page),
        first=first,
        last=last,
        count=len(page),
        earlier=first if earlier else None,
        later=last if later else None,
    )


def _cut(events: QuerySet[RawEvent], before: int | None, after: int | None, size: int) -> tuple[list[RawEvent], bool]:
    if after is not None:
        events = events.filter(position__gt=after)
    elif before is not None:
        events = events.filter(position__lt=before)
    ordered = events.order_by("position" if after is not None else "-position")
    # Sort positions first, so that payloads of one page only are read.
    positions = list(ordered.values_list("position", flat=True)[: size + 1])
    page = RawEvent.objects.filter(position__in=positions[:size]).order_by("position")
    return list(page), len(positions) > size


def _days(events: list[RawEvent]) -> list[Day]:
    turns = _turns_of(events)
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
    tokens = _count_tokens(turns.values())
    seconds = {turn.id: _duration(turn) for turn in turns.values()}
    longest, most = max(seconds.values()) or 1, max(tokens.values()) or 1
    for part in parts:
        if part.turn:
            part.tokens = tokens[part.turn.id]
            part.token_share = round(100 * part.tokens / most)
            part.time_share = round(100 * seconds[part.turn.id] / longest)


# Not below zero: the clock may have been set back meanwhile
def _duration(turn: Turn) -> float:
    return max(0.0, ((turn.ended_at or clock.now()) - turn.began_at).total_seconds())


def _count_tokens(turns: Collection[Turn]) -> dict[int, int]:
    events = RawEvent.objects.filter(
        session_id__in={turn.session_id for turn in turns}, turn_id__in={turn.turn_id for turn in turns}
    )
    sizes = events.order_by().values("session_id", "turn_id").annotate(size=Sum(Length("payload_json")))
    sized = {(session, turn): size for session, turn, size in sizes.values_list("session_id", "turn_id", "size")}
    return {turn.id: (sized.get((turn.session_id, turn.turn_id)) or 0) // BYTES_PER_TOKEN for turn in turns}


def _parts(
    events: Iterable[RawEvent], turns: dict[tuple[str, str], Turn], prompts: dict[int, str], titles: dict[int, str]
) -> list[TimelinePart]:
    parts: list[TimelinePart] = []
    by_turn: dict[int, TimelinePart] = {}
    for event in events:
        turn = turns.get((event.session_id, event.turn_id))
        part = by_turn.get(turn.id) if turn else (parts[-1] if parts and parts[-1].turn is None else None)
        if part is None:
            part = TimelinePart(event.session_id, turn, prompts.get(turn.id, "") if turn else "")
            parts.append(part)
            if turn:
                by_turn[turn.id] = part
        if not _is_frame(event):
            part.entries.append(_entry(event, titles.get(entity_of(event), "")))
    return parts


# The turn's own line shows its start, and its end without a summary.
def _is_frame(event: RawEvent) -> bool:
    if event.event_type == TURN_ENDED.name:
        return not json.loads(event.payload_json or "{}").get("summary")
    return event.event_type == TURN_BEGAN.name


def entries_of(events: list[RawEvent]) -> list[TimelineItem]:
    titles = _titles(events)
    return [_entry(event, titles.get(entity_of(event), "")) for event in events]


def happened_at(event: RawEvent) -> str:
    """Return when something happened that another tool recorded before it was imported, else when it was appended."""
    known_type = event_type(event.event_type)
    declared = known_type.schema.model_fields if known_type else {}  # not a client's own fields
    payload = json.loads(event.payload_json or "{}")
    times = [str(payload[name]) for name in _TIMES if name in declared and payload.get(name)]
    return min([event.occurred_at, *times])


def _entry(event: RawEvent, title: str) -> TimelineItem:
    payload = json.loads(event.payload_json or "{}")
    text, fields = body(event.event_type, payload)
    return TimelineItem(
        position=event.position,
        type=event.event_type,
        occurred_at=clock.from_text(happened_at(event)),
        actor=event.actor,
        source=event.source,
        stream_id=event.stream_id,
        digest=event.chain_digest,
        title=about(event.event_type, payload, title),
        text=text,
        rest=fields,
        is_erased=event.payload_json is None,
    )


def _turns_of(events: list[RawEvent]) -> dict[tuple[str, str], Turn]:
    names = {(event.session_id, event.turn_id) for event in events if event.turn_id}
    sessions, turns = {name for name, _ in names}, {name for _, name in names}
    matches = Turn.objects.filter(session_id__in=sessions, turn_id__in=turns) if names else ()
    return {(turn.session_id, turn.turn_id): turn for turn in matches}


def first_prompts(turns: Iterable[Turn]) -> dict[int, str]:
    """Map turn ids to the first line of the user's prompt; turns without one are left out."""
    begins = dict(
        RawEvent.objects.filter(position__in=[turn.id for turn in turns]).values_list("stream_id", "position")
    )
    openings = RawEvent.objects.filter(stream_id__in=list(begins), stream_seq__lte=_PROMPT_WITHIN)
    latest_first = openings.order_by("-position").values_list("stream_id", "position", "event_type")
    prompt_types = names_of_speech(Speech.PROMPT)
    first = {stream: position for stream, position, name in latest_first if name in prompt_types}
    prompts = RawEvent.objects.filter(position__in=list(first.values()), payload_json__isnull=False)
    return {begins[event.stream_id]: _title(event) for event in prompts}


def session_titles(sessions: Iterable[Session]) -> dict[str, str]:
    """Map session names to titles: the purpose, else the first prompt, else ""."""
    titles = {session.session_id: first_line(session.purpose) for session in sessions}
    unnamed = [name for name, title in titles.items() if not title]
    firsts = Turn.objects.filter(session_id__in=unnamed).values("session_id").annotate(first=Min("id")).order_by()
    first_turns = list(Turn.objects.filter(id__in=[row["first"] for row in firsts]))
    prompts = first_prompts(first_turns)
    return titles | {turn.session_id: prompts.get(turn.id, "") for turn in first_turns}


# Titles from the events that created the entities, by id.
def _titles(events: list[RawEvent]) -> dict[int, str]:
    ids = {entity_of(event) for event in events} - {event.position for event in events}
    created = RawEvent.objects.filter(position__in=ids) if ids else ()
    here = [event for event in events if entity_of(event) == event.position]
    return {event.position: _title(event) for event in [*created, *here]}


def _title(event: RawEvent) -> str:
    return about(event.event_type, json.loads(event.payload_json or "{}"), "")
