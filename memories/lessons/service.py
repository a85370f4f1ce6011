"""Propose what the rules find in a session as memories that wait for a person, a few in each session."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from pathlib import PurePath

from memories.duplicates import already_stored, share_of, words_of
from memories.lessons.rules import Lesson, files_together, lessons_of, repeated_commands
from memories.models import EndType, Memory, MemoryVersion, RelationType, ReviewState
from memories.review.policy import PROPOSED_BY_RULE, RULES_DOOR
from memories.schemas import MemoryWrite, WriteResult
from memories.schemas.links import RelationCreate
from memories.services import write_memory
from memories.services.links import create_relation
from memoryhub.config.current_settings import project_settings
from memoryhub.config.retention_rules import Lessons
from memoryhub.core import log
from memoryhub.core.contributions import closings
from memoryhub.core.errors import HubError
from memoryhub.core.events.event_types import Speech, names_of_speech
from memoryhub.core.origin import use_origin
from memoryhub.core.stores.dialect import begins_with
from memoryhub.core.text import flat
from sessions_app.events import COMMIT_RECORDED
from sessions_app.events.client import COMMAND_RUN, FILE_EDITED
from sessions_app.models import Session, SessionMode
from sessions_app.selectors import SessionEvent, read_events
from sessions_app.services.capture import project_folders, within_folders

logger = logging.getLogger(__name__)

# Lessons of one session
MOST = 5
# Newest events that are read: of the session, and of all sessions for what repeats
_MOST_EVENTS, _MOST_PAST = 3_000, 3_000
# Rejected lessons that a new one is compared with, and the share of common words from which it is one of them
_MOST_REJECTED = 300
_ALIKE = 0.6
# The best lessons that are compared with what is stored
_MOST_COMPARED = 20
_TOPIC = "rule:"


def close_session(session_id: str, *, asks: bool) -> str:
    """Propose the lessons of a session that ends or is compacted; never fails.

    Args:
        session_id: the session.
        asks: whether its turn ends, and its agent can be asked; then nothing is done unless ``ask_agent`` is on.

    Returns:
        What the agent is asked, once in a session; "" for nothing.
    """
    try:
        if asks and not project_settings().ask_agent:
            return ""
        proposed = propose_lessons(session_id)
    except Exception:
        # The end of a session must not fail for what may be learnt from it
        logger.exception("no lessons are proposed from session %s", session_id)
        return ""
    # Earlier ones were asked about, or are left to the user
    if asks and proposed and len(proposed) == _count_proposed(session_id):
        return _question(proposed)
    return ""


closings.append(close_session)


def propose_lessons(session_id: str) -> list[WriteResult]:
    """Write the best lessons of a session that are not stored yet, and return them.

    They wait for review, unless the project accepts them as they are, or wants none. At most ``MOST`` are written in a
    session. What a person has rejected, deleted or written in other words is not proposed again.
    """
    if project_settings().lessons is Lessons.OFF:
        return []
    session = Session.objects.filter(session_id=session_id).exclude(mode=SessionMode.SCRATCH).first()
    if session is None or _count_proposed(session_id) >= MOST:
        return []
    lessons = _unknown(_all_lessons(session))
    if not lessons:
        return []
    results = []
    with log.transaction(), use_origin(source=RULES_DOOR, actor="memory-hub", session_id=session_id, ack_token=""):
        # Again under the lock: another process may have ended or compacted the session too
        stored_topics = _stored_topics(lessons)
        new_lessons = [lesson for lesson in lessons if _topic_of(lesson) not in stored_topics]
        for lesson in new_lessons[: max(MOST - _count_proposed(session_id), 0)]:
            try:
                results.append(_propose(lesson, session))
            except HubError as error:  # such as a prompt that quotes a context pack
                logger.info("a lesson is not proposed: %s", error.message)
    return results


def _propose(lesson: Lesson, session: Session) -> WriteResult:
    evidence = ", ".join(f"#{position}" for position in lesson.events)
    command = MemoryWrite(
        title=lesson.title,
        content=f"{lesson.content}\n\nEvidence: {evidence} of session #{session.id}.",
        kind=lesson.kind,
        type=lesson.type,
        attributes=dict(lesson.attributes),
        topic_key=_topic_of(lesson),
        source=f"{PROPOSED_BY_RULE}{_REASONS[lesson.rule]}",
    )
    result = write_memory(command=command)
    relation = RelationCreate(
        source=result.id,
        source_type=EndType.MEMORY,
        relation=RelationType.DERIVED_FROM,
        target=session.id,
        target_type=EndType.SESSION,
    )
    create_relation(command=relation)
    return result


# Why each rule proposes
_REASONS = {
    "correction": "the user corrected the agent",
    "cure": "a command failed, and passed later",
    "command": "several sessions run the command",
    "files": "the files always change together",
}


# What a person has said and what has failed come before what repeats
def _all_lessons(session: Session) -> Iterator[Lesson]:
    tops = project_folders(session.directory)
    types = (*names_of_speech(Speech.PROMPT), *names_of_speech(Speech.ANSWER), COMMAND_RUN.name, FILE_EDITED.name)
    stored = log.events().of_session(session.session_id).of_type(*types)
    events = _newest(stored, _MOST_EVENTS, "content", "command", "path", "exit_code")
    for event in events:
        if event.type == FILE_EDITED.name:
            event.payload["path"] = within_folders(event.payload["path"], tops)
    yield from lessons_of(events)
    yield from repeated_commands(_past_commands(), session.session_id)
    edited = {event.payload["path"] for event in events if event.type == FILE_EDITED.name}
    if edited:
        yield from files_together(_past_changes(tops), edited)


# With those fields of their payloads; outputs and changes can be long, and only those of failures are read
def _newest(stored: log.EventQuerySet, most: int, *fields: str) -> list[SessionEvent]:
    events: list[SessionEvent] = []
    for event in read_events(stored.order_by("-position"), most):
        needed = {*fields, "output"} if event.has_failed else {*fields}
        payload = {name: value for name, value in event.payload.items() if name in needed}
        events.append(event._replace(payload=payload))
    return events[::-1]


def _past_commands() -> Iterator[tuple[int, str, str]]:
    for run in _newest(log.events().of_type(COMMAND_RUN), _MOST_PAST, "command", "exit_code"):
        if not run.has_failed:
            yield run.position, run.session_id, run.payload["command"]


# The files of each commit, and of each session without one
def _past_changes(tops: list[PurePath]) -> list[tuple[int, frozenset[str]]]:
    changes: list[tuple[int, frozenset[str]]] = []
    committing: set[str] = set()
    for commit in _newest(log.events().of_type(COMMIT_RECORDED), _MOST_PAST, "files"):
        committing.add(commit.session_id)
        changes.append((commit.position, frozenset(file["path"] for file in commit.payload.get("files", ()))))
    edits: dict[str, tuple[int, set[str]]] = {}
    for edit in _newest(log.events().of_type(FILE_EDITED), _MOST_PAST, "path"):
        if edit.session_id not in committing:
            _, files = edits.setdefault(edit.session_id, (edit.position, set()))
            files.add(within_folders(edit.payload["path"], tops))
    return [*changes, *((position, frozenset(files)) for position, files in edits.values())]


# Each of them costs a look into the index
def _unknown(lessons: Iterator[Lesson]) -> list[Lesson]:
    distinct = list({_topic_of(lesson): lesson for lesson in lessons}.values())[:_MOST_COMPARED]
    stored_topics = _stored_topics(distinct)
    rejected = Memory.objects.filter(begins_with("topic_key", _TOPIC), review=ReviewState.REJECTED).order_by("-id")
    refused = [words_of(content) for content in rejected.values_list("content", flat=True)[:_MOST_REJECTED]]
    unknown: list[Lesson] = []
    for lesson in distinct:
        if len(unknown) == MOST:
            break
        words = words_of(lesson.content)
        is_refused = any(share_of(words, other) >= _ALIKE for other in refused)
        if _topic_of(lesson) not in stored_topics and not is_refused and not already_stored(lesson.subject):
            unknown.append(lesson)
    return unknown


# Also of deleted and rejected memories
def _stored_topics(lessons: Sequence[Lesson]) -> set[str]:
    topics = Memory.objects.filter(topic_key__in=map(_topic_of, lessons))
    return {topic for topic in topics.values_list("topic_key", flat=True) if topic}


def _topic_of(lesson: Lesson) -> str:
    subject = " ".join(sorted(words_of(lesson.subject))) or lesson.subject
    return f"{_TOPIC}{lesson.rule}:{blake2b(subject.encode(), digest_size=8).hexdigest()}"


def _count_proposed(session_id: str) -> int:
    count: int = MemoryVersion.objects.filter(session_id=session_id, source=RULES_DOOR, version=1).count()
    return count


def _question(proposed: Sequence[WriteResult]) -> str:
    sources = dict(Memory.objects.filter(id__in=[result.id for result in proposed]).values_list("id", "source"))
    # Only the user's own words: an error's text and names of files are written by anyone, and this reads as a demand
    by_user = f"{PROPOSED_BY_RULE}{_REASONS['correction']}"
    lines = "\n".join(
        flat(f"- #{result.id} {result.title if sources[result.id] == by_user else sources[result.id]}")
        for result in proposed
    )
    return (
        f"Memory Hub noted this from the session, for the user's review:\n{lines}\n"
        "If one is right and will matter in later sessions, rewrite it with memory_update as one short rule. If one is "
        "wrong, delete it with memory_delete. Change nothing else, and end with the answer that you have given."
    )
