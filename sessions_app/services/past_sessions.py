"""Sessions of another tool, which happened before the hub knew of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from memoryhub.core import clock, log
from memoryhub.core.errors import Invalid
from memoryhub.core.events.event_types import EventType
from memoryhub.core.log import Draft
from memoryhub.core.origin import use_origin
from memoryhub.core.text import flat, shortened
from sessions_app import events
from sessions_app.events.client import (
    ASSISTANT_MESSAGE,
    COMMAND_RUN,
    FILE_EDITED,
    MAX_TEXT,
    USER_MESSAGE,
    CommandRun,
    FileEdited,
    Message,
)
from sessions_app.models import Session, SessionStatus, Turn
from sessions_app.services.turns import stream_of_turn

_MAX_PURPOSE, _MAX_SUMMARY = 2_000, 20_000
_MAX_COMMAND, _MAX_OUTPUT, _MAX_PATH = 10_000, 8_000, 4_000


@dataclass(frozen=True, slots=True)
class PastCommand:
    """A command that was run, with the end of its output."""

    command: str
    output: str
    exit_code: int
    at: datetime | None = None
    # For one that failed: whether the same program passed before in the session
    passed_before: bool = False


@dataclass(frozen=True, slots=True)
class PastEdit:
    """A file that was changed."""

    path: str


@dataclass(frozen=True, slots=True)
class PastTurn:
    """A prompt and its answer, and what was done between: failed commands, what ran until they passed, edited files."""

    prompt: str
    answer: str = ""
    began_at: datetime | None = None
    ended_at: datetime | None = None
    # In their order
    actions: Sequence[PastCommand | PastEdit] = ()


@dataclass(frozen=True, slots=True)
class PastSession:
    """A session with all its turns. Texts that are too long are cut."""

    session_id: str
    purpose: str
    agent: str
    turns: Sequence[PastTurn] = ()
    summary: str = ""
    started_at: datetime | None = None
    ended_at: datetime | None = None


class Fate(StrEnum):
    """What an import does with a session."""

    CREATED = "created"
    # It has more turns, or another summary, than when it was imported before
    EXTENDED = "extended"
    UNCHANGED = "unchanged"
    # The hub has recorded it while it happened
    CAPTURED = "captured"


@dataclass(frozen=True, slots=True)
class PlannedSession:
    """A session with what an import does with it."""

    session: PastSession
    fate: Fate
    # How many of its turns are in the store already
    known_turns: int = 0


def plan_past_sessions(sessions: Sequence[PastSession]) -> list[PlannedSession]:
    """Compare sessions with those in the store; changes nothing."""
    names = [session.session_id for session in sessions]
    summaries = dict(Session.objects.filter(session_id__in=names).values_list("session_id", "summary"))
    turns = _recorded_turns(names)
    return [_planned(session, summaries.get(session.session_id), turns) for session in sessions]


def imported_sessions(names: Sequence[str]) -> dict[str, bool]:
    """Return those of the sessions that are in the store, and whether they were imported and not captured."""
    turns = _recorded_turns(names)
    present = Session.objects.filter(session_id__in=names).values_list("session_id", flat=True)
    return {name: bool(turns.get(name)) and _are_imported(turns[name]) for name in present}


def _recorded_turns(names: Sequence[str]) -> dict[str, set[str]]:
    turns: dict[str, set[str]] = {}
    for name, turn in Turn.objects.filter(session_id__in=names).values_list("session_id", "turn_id"):
        turns.setdefault(name, set()).add(turn)
    return turns


# Imported turns are numbered; those that were captured have random names
def _are_imported(turns: set[str]) -> bool:
    return turns == set(map(str, range(1, len(turns) + 1)))


def _planned(session: PastSession, summary: str | None, turns: dict[str, set[str]]) -> PlannedSession:
    if summary is None:
        return PlannedSession(session, Fate.CREATED)
    recorded = turns.get(session.session_id, set())
    if not _are_imported(recorded) or (not recorded and session.turns):
        return PlannedSession(session, Fate.CAPTURED)
    fate = Fate.UNCHANGED
    ended = log.prepare(events.SESSION_ENDED, _ended(session)).payload
    if len(recorded) < len(session.turns) or ended.summary != summary:
        fate = Fate.EXTENDED
    return PlannedSession(session, fate, len(recorded))


def drafts_of(planned: PlannedSession) -> list[tuple[str, str, Draft[Any]]]:
    """Return (turn, stream, draft) for each event that ``record_past_session`` would append."""
    session = planned.session
    stream = f"session:{session.session_id}"
    drafts: list[tuple[str, str, Draft[Any]]] = []
    if planned.fate is Fate.CREATED:
        started = events.SessionStarted(
            session_id=session.session_id,
            purpose=shortened(session.purpose, _MAX_PURPOSE),
            agent=session.agent,
            **_at("started_at", session.started_at),
        )
        drafts.append(("", stream, log.prepare(events.SESSION_STARTED, started)))
    for number, turn in enumerate(session.turns[planned.known_turns :], planned.known_turns + 1):
        drafts += _drafts_of_turn(session, str(number), turn)
    drafts.append(("", stream, log.prepare(events.SESSION_ENDED, _ended(session))))
    return drafts


def record_past_session(*, planned: PlannedSession) -> set[str]:
    """Record what is new in a session, in one transaction, and return the types of the secrets that were masked."""
    if planned.fate not in (Fate.CREATED, Fate.EXTENDED):
        return set()
    drafts = drafts_of(planned)
    with log.transaction():
        for turn, stream, draft in drafts:
            session_id = planned.session.session_id if turn else ""
            with use_origin(session_id=session_id, turn_id=turn):
                log.append(draft, stream=stream)
    return {name for *_, draft in drafts for name in draft.redactions}


def _drafts_of_turn(session: PastSession, name: str, turn: PastTurn) -> list[tuple[str, str, Draft[Any]]]:
    stream = stream_of_turn(session.session_id, name)
    names = {"session_id": session.session_id, "turn_id": name}
    began = events.TurnBegan(**names, ack_seconds=0, automatic=True, **_at("began_at", turn.began_at))
    ended = events.TurnEnded(**names, **_at("ended_at", turn.ended_at or turn.began_at))
    messages = [
        _message(USER_MESSAGE, turn.prompt, turn.began_at),
        *map(_action, turn.actions),
        _message(ASSISTANT_MESSAGE, turn.answer, turn.ended_at or turn.began_at),
    ]
    drafts = [log.prepare(events.TURN_BEGAN, began), *filter(None, messages), log.prepare(events.TURN_ENDED, ended)]
    return [(name, stream, draft) for draft in drafts]  # type: ignore[misc]


def _message(event_type: EventType[Message], text: str, moment: datetime | None) -> Draft[Message] | None:
    if not text.strip():
        return None
    try:
        return log.prepare(event_type, Message(content=shortened(text, MAX_TEXT), **_at("written_at", moment)))
    except Invalid:
        return None  # nothing is left of it without its private parts


def _action(action: PastCommand | PastEdit) -> Draft[CommandRun] | Draft[FileEdited] | None:
    if isinstance(action, PastEdit):
        return _edit(action)
    return _command(action)


def _command(command: PastCommand) -> Draft[CommandRun] | None:
    if not command.command.strip():
        return None
    run = CommandRun(
        command=shortened(command.command, _MAX_COMMAND),
        output=command.output[-_MAX_OUTPUT:],
        exit_code=command.exit_code,
        **_at("written_at", command.at),
        **({"passed_before": True} if command.passed_before else {}),
    )
    return log.prepare(COMMAND_RUN, run)


def _edit(edit: PastEdit) -> Draft[FileEdited] | None:
    path = flat(edit.path).strip()
    if not path or len(path) > _MAX_PATH:
        return None
    return log.prepare(FILE_EDITED, FileEdited(path=path))


def _ended(session: PastSession) -> events.SessionEnded:
    return events.SessionEnded(
        session_id=session.session_id,
        status=SessionStatus.COMPLETED,
        summary=shortened(session.summary, _MAX_SUMMARY),
        **_at("ended_at", session.ended_at or session.started_at),
    )


# A source's clock may be ahead
def _at(name: str, moment: datetime | None) -> dict[str, str]:
    return {name: clock.to_text(min(clock.in_utc(moment), clock.now()))} if moment else {}
