"""What happened, as a person reads it: the days, the turns of each day, and the entries of each turn."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date, datetime
from itertools import groupby
from typing import Any

from django.db.models import Count, Min, Q, QuerySet

from memoryhub.core import clock
from memoryhub.core.events.event_types import Speech, event_type, names_of_speech
from memoryhub.core.log.event_view import entity_of
from memoryhub.core.models import RawEvent
from memoryhub.core.text import first_line
from sessions_app.event_summaries import about, body
from sessions_app.events.sessions import TURN_BEGAN, TURN_ENDED
from sessions_app.models import Iteration, Session, Turn, TurnStatus

PAGE = 200
"""At most so many events are on a page."""
_PROMPT_WITHIN = 8
"""The user's words are among the first events of a turn."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One event: what it was about in one line, its longest text, and the rest of its payload."""

    position: int
    type: str
    occurred_at: datetime
    actor: str
    source: str
    stream_id: str
    digest: str
    title: str
    text: str
    rest: dict[str, Any]
    """The payload without ``text``."""
    is_erased: bool

    @property
    def thing(self) -> str:
        """What it happened to: ``memory``, ``commit``, ``turn`` and so on."""
        return self.stream_id.partition(":")[0]

    @property
    def exit_code(self) -> int | None:
        """With what a command ended, if it was one and said so."""
        return self.rest.get("exit_code")

    @property
    def failed(self) -> bool:
        """Whether it tells of a failure."""
        known = event_type(self.type)
        return bool(self.exit_code or self.rest.get("is_error") or (known and known.is_failure))


@dataclass(slots=True)
class Part:
    """The entries of one turn on one day; where ``turn`` is None, entries of no turn."""

    session_id: str
    turn: Turn | None
    prompt: str
    """The first line of what the user asked."""
    entries: list[Entry] = field(default_factory=list)
    is_last: bool = False


@dataclass(frozen=True, slots=True)
class Day:
    """One day, in UTC."""

    date: date
    parts: list[Part]


@dataclass(frozen=True, slots=True)
class TimelinePage:
    """A page of a timeline, oldest first, and the positions from which its neighbours go on."""

    days: list[Day]
    first: int = 0
    last: int = 0
    count: int = 0
    earlier: int | None = None
    """The page before this one ends before this position; None where this is the first."""
    later: int | None = None
    """The page after this one begins after this position; None where this is the last."""


def session_events(session: Session) -> QuerySet[RawEvent]:
    """Return what happened in a session and to it."""
    stream = RawEvent.objects.filter(stream_id=f"session:{session.session_id}").values("position")
    return RawEvent.objects.filter(Q(session_id=session.session_id) | Q(position__in=stream))


def turn_events(turn: Turn) -> QuerySet[RawEvent]:
    """Return what happened in a turn."""
    found = RawEvent.objects.filter(session_id=turn.session_id, turn_id=turn.turn_id, position__gte=turn.id)
    if turn.status == TurnStatus.OPEN:
        return found
    # Its own stream ends with it; without this bound, all that came later in the session would be looked at.
    stream = RawEvent.objects.filter(position=turn.id).values("stream_id")
    return found.filter(
        position__lte=RawEvent.objects.filter(stream_id__in=stream).order_by("-stream_seq").values("position")[:1]
    )


def iteration_events(iteration: Iteration) -> QuerySet[RawEvent]:
    """Return what happened from an iteration's start to its end."""
    found = RawEvent.objects.filter(position__gte=iteration.id)
    return found.filter(position__lte=iteration.end_position) if iteration.end_position else found


def count_types(events: QuerySet[RawEvent]) -> dict[str, int]:
    """Return how many events there are of each type."""
    counted = events.order_by().values("event_type").annotate(events=Count("position"))
    return dict(counted.values_list("event_type", "events"))


def timeline_page(
    events: QuerySet[RawEvent], *, before: int | None = None, after: int | None = None, size: int = PAGE
) -> TimelinePage:
    """Return a page of ``events``: the last one, or that before or after a position.

    Args:
        events: which events, in any order.
        before: only positions less than this, the newest of them.
        after: only positions greater than this, the oldest of them; wins over ``before``.
        size: at most so many events.
    """
    found, more = _cut(events, before, after, size)
    if not found:
        return TimelinePage([])
    first, last = found[0].position, found[-1].position
    earlier = more if after is None else bool(after) and events.filter(position__lt=first).exists()
    later = more if after is not None else before is not None and events.filter(position__gt=last).exists()
    return TimelinePage(
        days=_days(found),
        first=first,
        last=last,
        count=len(found),
        earlier=first if earlier else None,
        later=last if later else None,
    )


def _cut(events: QuerySet[RawEvent], before: int | None, after: int | None, size: int) -> tuple[list[RawEvent], bool]:
    """Return a page of events in order, and whether more follow in the direction in which it was cut."""
    if after is not None:
        events = events.filter(position__gt=after)
    elif before is not None:
        events = events.filter(position__lt=before)
    ordered = events.order_by("position" if after is not None else "-position")
    # Positions alone are sorted first: payloads are read of one page only.
    positions = list(ordered.values_list("position", flat=True)[: size + 1])
    page = RawEvent.objects.filter(position__in=positions[:size]).order_by("position")
    return list(page), len(positions) > size


def _days(events: list[RawEvent]) -> list[Day]:
    turns = _turns_of(events)
    prompts = first_prompts(turns.values())
    titles = _titles(events)
    days = []
    for day, rows in groupby(events, key=lambda event: event.occurred_at[:10]):
        days.append(Day(date.fromisoformat(day), _parts(rows, turns, prompts, titles)))
    with_turn = [part for day in days for part in day.parts if part.turn]
    if with_turn:
        with_turn[-1].is_last = True
    return days


def _parts(
    events: Iterable[RawEvent], turns: dict[tuple[str, str], Turn], prompts: dict[int, str], titles: dict[int, str]
) -> list[Part]:
    parts: list[Part] = []
    by_turn: dict[int, Part] = {}
    for event in events:
        turn = turns.get((event.session_id, event.turn_id))
        part = by_turn.get(turn.id) if turn else (parts[-1] if parts and parts[-1].turn is None else None)
        if part is None:
            part = Part(event.session_id, turn, prompts.get(turn.id, "") if turn else "")
            parts.append(part)
            if turn:
                by_turn[turn.id] = part
        if not _is_frame(event):
            part.entries.append(_entry(event, titles.get(entity_of(event), "")))
    return parts


def _is_frame(event: RawEvent) -> bool:
    """Whether the turn's own line says all of it: its begin, and its end without a summary."""
    if event.event_type == TURN_ENDED.name:
        return not json.loads(event.payload_json or "{}").get("summary")
    return event.event_type == TURN_BEGAN.name


def entries_of(events: list[RawEvent]) -> list[Entry]:
    """Return events as entries, in the order given."""
    titles = _titles(events)
    return [_entry(event, titles.get(entity_of(event), "")) for event in events]


def _entry(event: RawEvent, title: str) -> Entry:
    """Return an event as an entry; ``title`` is that of the thing it happened to, where its payload does not say it."""
    payload = json.loads(event.payload_json or "{}")
    text, rest = body(event.event_type, payload)
    return Entry(
        position=event.position,
        type=event.event_type,
        occurred_at=clock.from_text(event.occurred_at),
        actor=event.actor,
        source=event.source,
        stream_id=event.stream_id,
        digest=event.chain_digest,
        title=about(event.event_type, payload, title),
        text=text,
        rest=rest,
        is_erased=event.payload_json is None,
    )


def _turns_of(events: list[RawEvent]) -> dict[tuple[str, str], Turn]:
    names = {(event.session_id, event.turn_id) for event in events if event.turn_id}
    sessions, turns = {name for name, _ in names}, {name for _, name in names}
    found = Turn.objects.filter(session_id__in=sessions, turn_id__in=turns) if names else ()
    return {(turn.session_id, turn.turn_id): turn for turn in found}


def first_prompts(turns: Iterable[Turn]) -> dict[int, str]:
    """Return the first line of what the user asked in each turn, by the turn's id; silent turns are left out."""
    begins = dict(
        RawEvent.objects.filter(position__in=[turn.id for turn in turns]).values_list("stream_id", "position")
    )
    openings = RawEvent.objects.filter(stream_id__in=list(begins), stream_seq__lte=_PROMPT_WITHIN)
    latest_first = openings.order_by("-position").values_list("stream_id", "position", "event_type")
    prompts_are = names_of_speech(Speech.PROMPT)
    asked = {stream: position for stream, position, name in latest_first if name in prompts_are}
    prompts = RawEvent.objects.filter(position__in=list(asked.values()), payload_json__isnull=False)
    return {begins[event.stream_id]: _title(event) for event in prompts}


def session_titles(sessions: Iterable[Session]) -> dict[str, str]:
    """Return what to call each session, by name: its purpose, else what was asked first in it, else nothing."""
    titles = {session.session_id: first_line(session.purpose) for session in sessions}
    unnamed = [name for name, title in titles.items() if not title]
    firsts = Turn.objects.filter(session_id__in=unnamed).values("session_id").annotate(first=Min("id")).order_by()
    first_turns = list(Turn.objects.filter(id__in=[row["first"] for row in firsts]))
    prompts = first_prompts(first_turns)
    return titles | {turn.session_id: prompts.get(turn.id, "") for turn in first_turns}


def _titles(events: list[RawEvent]) -> dict[int, str]:
    """Return the titles under which the things that these events happened to came to be."""
    ids = {entity_of(event) for event in events} - {event.position for event in events}
    created = RawEvent.objects.filter(position__in=ids) if ids else ()
    here = [event for event in events if entity_of(event) == event.position]
    return {event.position: _title(event) for event in [*created, *here]}


def _title(event: RawEvent) -> str:
    return about(event.event_type, json.loads(event.payload_json or "{}"), "")
