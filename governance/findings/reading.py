"""What findings read of a project: the sessions with their commands, prompts and edits, in few queries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property, lru_cache
from operator import attrgetter
from pathlib import PurePath

from governance.findings.schemas import FindingEvidence
from memories.lessons.rules import Cure, cured_failures
from memoryhub.core import clock, log
from memoryhub.core.events.event_types import Speech, names_of_speech
from memoryhub.core.log.quarantine import outside_quarantine
from memoryhub.core.text import flat, one_line
from sessions_app.events.client import COMMAND_RUN, FILE_EDITED
from sessions_app.models import Session
from sessions_app.selectors import SessionEvent, read_events
from sessions_app.services.capture import project_folders, within_folders

# Newest events that are read, and characters of a prompt; a correction stands at its beginning
MOST_EVENTS = 40_000
_PROMPT = 4_000
# Characters of an output that are read: its end says what failed
_OUTPUT = 3_000
_EXCERPT = 240


@dataclass
class SessionLog:
    """What a session said, ran and edited, oldest first; passed commands without their output, answers without text."""

    session_id: str
    events: list[SessionEvent] = field(default_factory=list)

    @cached_property
    def cures(self) -> dict[int, Cure]:
        """The cures of failed commands, by the position of the failure."""
        return {cure.failed.position: cure for cure in cured_failures(self.events)}


@dataclass(frozen=True, slots=True)
class SessionsRead:
    sessions: list[SessionLog]
    # Whether older sessions were left out
    is_partial: bool


def read_sessions() -> SessionsRead:
    """Return the sessions of the newest events of the current store, without one that began before these."""
    events = list(_events())
    oldest = min((event.position for event in events), default=0)
    is_partial = len(events) >= MOST_EVENTS
    begun = {session_id: (begun, folder) for session_id, begun, folder in _begun_sessions()}
    sessions: dict[str, SessionLog] = {}
    for event in [*reversed(events), *_answers(oldest)]:
        if event.session_id in begun and not (is_partial and begun[event.session_id][0] < oldest):
            sessions.setdefault(event.session_id, SessionLog(event.session_id)).events.append(event)
    for session in sessions.values():
        session.events.sort(key=attrgetter("position"))
        tops = _folders(begun[session.session_id][1])
        for event in session.events:
            if event.type == FILE_EDITED.name:
                event.payload["path"] = within_folders(event.payload["path"], tops)
    return SessionsRead(list(sessions.values()), is_partial)


def _begun_sessions() -> Iterator[tuple[str, int, str]]:
    yield from outside_quarantine(Session.objects.all()).values_list("session_id", "id", "directory")


def _events() -> Iterator[SessionEvent]:
    types = (*names_of_speech(Speech.PROMPT), COMMAND_RUN.name, FILE_EDITED.name)
    newest = log.events().of_type(*types).without_undone().order_by("-position")
    for event in read_events(newest, MOST_EVENTS):
        yield event._replace(payload=_needed(event))


# Answers are long, and only that there is one matters
def _answers(after: int) -> Iterator[SessionEvent]:
    answers = log.events().of_type(*names_of_speech(Speech.ANSWER)).readable().window(after=after)
    for position, name, session_id in answers.values_list("position", "event_type", "session_id"):
        yield SessionEvent(position, name, {}, session_id)


def _needed(event: SessionEvent) -> dict[str, object]:
    payload = event.payload
    if event.type == FILE_EDITED.name:
        return {"path": payload["path"]}
    written_at = payload.get("written_at") or ""
    if event.type != COMMAND_RUN.name:
        return {"content": payload["content"][:_PROMPT], "written_at": written_at}
    needed = {name: payload.get(name) for name in ("command", "exit_code", "passed_before")}
    output = payload.get("output", "")[-_OUTPUT:] if event.has_failed else ""
    return {**needed, "output": output, "written_at": written_at}


@lru_cache(maxsize=256)
def _folders(directory: str) -> list[PurePath]:
    return project_folders(directory) if directory else []


def moment_of(event: SessionEvent) -> datetime | None:
    """Return when an event happened, which is earlier than when it was imported."""
    text = event.payload.get("written_at") or event.occurred_at
    return clock.from_text(text) if text else None


def when(event: SessionEvent) -> tuple[str, int]:
    """Return what orders events by time; an import may bring the newest session first."""
    return event.payload.get("written_at") or event.occurred_at, event.position


def evidence_of(event: SessionEvent, kind: str, text: str) -> FindingEvidence:
    return FindingEvidence(
        id=event.position, type=kind, text=excerpt(text), session_id=event.session_id, at=moment_of(event)
    )


def excerpt(text: str, longest: int = _EXCERPT) -> str:
    """Return stored text on one line, cut."""
    return one_line(flat(text[: 8 * longest]), longest)
