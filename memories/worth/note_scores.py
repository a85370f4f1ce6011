"""What became of notes before actions, by their kind; a kind that is not followed is switched off (decision 92).

All of it is read from the log: what the session did after the note, and what the note's entry is now.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from enum import StrEnum

from django.db.models import QuerySet

from memories.lessons.corrections import is_correction
from memories.lessons.rules import command_key
from memories.models import ContextPack, Memory, ReviewState
from memories.pack.notes import MAX_TOKENS, forbidden_in, note_kind, note_sources, uses
from memories.pack.outcomes import SessionActivity, activity_of
from memories.pack.service import note_before, overlap_notice
from memories.pack_sorts import local_id
from memories.worth.schemas import KindScore
from memoryhub.core import clock, log
from memoryhub.core.contributions import PlannedAction, notes
from memoryhub.core.events.event_types import Speech, names_of_speech
from sessions_app.events.client import COMMAND_RUN, FILE_EDITED
from sessions_app.models import Session, SessionStatus
from sessions_app.selectors import SessionEvent, read_events

# A kind is switched off if fewer than this share of its judged notes were followed, from so many judged ones on
LEAST_FOLLOWED, LEAST_JUDGED = 0.5, 10
# Notes that count, and for how long: then the kind gets another chance
_MOST_NOTES, DAYS = 300, 90
# Events of a session after a note
_MOST_EVENTS = 20_000


class NoteOutcome(StrEnum):
    FOLLOWED = "followed"
    IGNORED = "ignored"
    CONTRADICTED = "contradicted"
    # Nothing shows what became of it
    UNDECIDED = "undecided"


def score_notes(since: datetime) -> list[KindScore]:
    """Return the scores of all kinds of notes that were given since a time, in the order of the kinds."""
    sent = _sent(since).order_by("-id").defer("positions", "digest")[:_MOST_NOTES]
    packs = [pack for pack in sent if note_kind(pack.marks)]
    outcomes = _judge(packs)
    counts = Counter((note_kind(pack.marks), outcomes[pack.id]) for pack in packs)
    scores: list[KindScore] = []
    for source in note_sources():
        judged = {name.value: counts[source.name, name] for name in NoteOutcome}
        total = sum(judged.values())
        judged.pop(NoteOutcome.UNDECIDED)
        score = KindScore(name=source.name, label=source.label, shown=total, **judged)
        score.is_off = score.judged >= LEAST_JUDGED and score.precision < LEAST_FOLLOWED
        scores.append(score)
    return scores


def scores_off() -> list[KindScore]:
    """Return the scores of the kinds that are switched off in the current store."""
    since = clock.now() - timedelta(days=DAYS)
    if _sent(since)[:LEAST_JUDGED].count() < LEAST_JUDGED:
        return []
    return [score for score in score_notes(since) if score.is_off]


def _sent(since: datetime) -> QuerySet[ContextPack]:
    return ContextPack.objects.filter(created_at__gte=since, max_tokens=MAX_TOKENS)


def _is_off(kind: str) -> bool:
    return any(score.name == kind for score in scores_off())


# That another session edits the file is said where nothing else is
def _note(action: PlannedAction) -> str:
    note = note_before(action, is_off=_is_off)
    return note or (overlap_notice(action.session_id, action.path) if action.path else "")


notes.append(_note)


def _judge(packs: Sequence[ContextPack]) -> dict[int, NoteOutcome]:
    names = {pack.session_id for pack in packs}
    sessions = {session.session_id: session for session in Session.objects.filter(session_id__in=names)}
    activity = activity_of(sessions)
    events = _events_of(names, after=min((pack.id for pack in packs), default=0))
    entries = {local_id(key) for pack in packs for key in pack.marks}
    memories = Memory.objects.in_bulk(entries)
    outcomes: dict[int, NoteOutcome] = {}
    for pack in packs:
        entry = next(map(local_id, pack.marks))
        session = sessions.get(pack.session_id)
        later = [event for event in events.get(pack.session_id, []) if event.position > pack.id]
        outcomes[pack.id] = _outcome(pack, memories.get(entry), later, session, activity.get(pack.session_id))
    return outcomes


def _events_of(sessions: Iterable[str], *, after: int) -> dict[str, list[SessionEvent]]:
    types = (COMMAND_RUN.name, FILE_EDITED.name, *names_of_speech(Speech.PROMPT))
    events = log.events().of_session(*sessions).of_type(*types).window(after=after)
    by_session: dict[str, list[SessionEvent]] = {}
    for event in read_events(events, _MOST_EVENTS):
        event.payload.pop("output", None)
        by_session.setdefault(event.session_id, []).append(event)
    return by_session


def _outcome(
    pack: ContextPack,
    memory: Memory | None,
    later: Sequence[SessionEvent],
    session: Session | None,
    activity: SessionActivity | None,
) -> NoteOutcome:
    if memory and (memory.deleted_at or memory.review == ReviewState.REJECTED):
        return NoteOutcome.CONTRADICTED
    if activity and not activity.touched.isdisjoint(map(local_id, pack.marks)):
        return NoteOutcome.FOLLOWED
    has_ended = session is not None and session.status in (SessionStatus.COMPLETED, SessionStatus.DISCARDED)
    runs = [event for event in later if event.type == COMMAND_RUN.name]
    same = [run for run in runs if command_key(run.payload["command"]) == pack.query]
    if same:
        outcome = _after_run(pack, same, has_ended=has_ended)
    else:
        outcome = _after_edit(pack, memory, later, has_ended=has_ended)
    if outcome is NoteOutcome.UNDECIDED and _is_corrected(later):
        return NoteOutcome.IGNORED
    return outcome


# The first run is that of the note: the client had decided on it. Of a failure it shows whether the note was right
def _after_run(pack: ContextPack, same: Sequence[SessionEvent], *, has_ended: bool) -> NoteOutcome:
    failed = [run.has_failed for run in same]
    if note_kind(pack.marks) == "failure" and not failed[0]:
        return NoteOutcome.CONTRADICTED
    if len(same) > 1 and (note_kind(pack.marks) != "failure" or failed[1]):
        return NoteOutcome.IGNORED
    if has_ended or len(same) > 1:
        return NoteOutcome.FOLLOWED
    return NoteOutcome.UNDECIDED


# The first edit is that of the note: a later one that takes back what the note forbids, or the edit itself, follows it
def _after_edit(
    pack: ContextPack, memory: Memory | None, later: Sequence[SessionEvent], *, has_ended: bool
) -> NoteOutcome:
    edits = [event for event in later if event.type == FILE_EDITED.name and _is_path(event.payload["path"], pack.query)]
    if not edits:
        return NoteOutcome.UNDECIDED
    first = edits[0].payload.get("change", "")
    forbidden = forbidden_in(memory.content, memory.attributes) if memory else set()
    added = [line for line in first.split("\n") if line.startswith("+") and line[1:].strip()]
    wrong = [line for line in added if any(uses(line, word) for word in forbidden)]
    for edit in edits[1:]:
        removed = {line[1:].strip() for line in edit.payload.get("change", "").split("\n") if line.startswith("-")}
        taken_back = [line for line in wrong or added if line[1:].strip() in removed]
        if taken_back and len(taken_back) == len(wrong or added):
            return NoteOutcome.FOLLOWED
    if wrong and has_ended:
        return NoteOutcome.IGNORED
    return NoteOutcome.UNDECIDED


def _is_path(path: str, topic: str) -> bool:
    return path == topic or path.endswith(f"/{topic}")


def _is_corrected(later: Sequence[SessionEvent]) -> bool:
    prompts = [event for event in later if event.type not in (COMMAND_RUN.name, FILE_EDITED.name)]
    return bool(prompts) and is_correction(prompts[0].payload.get("content", ""))
