"""The parts of a pack that are made of memories and of what happened."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from django.db.models import F

from memories.models import Conflict, Memory, MemoryKind, MemoryScope
from memories.pack.sections import Item, Request, Section, define_section, one_line, without_repeats
from memories.review.packs import tells, told
from memories.schemas import MemorySearch, SearchSourceName
from memories.scopes import Level
from memories.search import engine
from memoryhub.core import rows
from memoryhub.core.quarantine import OUTSIDE, outside_quarantine
from memoryhub.core.stores import use_store
from sessions_app.models import Commit, Iteration, IterationStatus, Session, SessionStatus

_MOST = 40
"""Candidates of a section and store; more would never fit."""

_TITLE = 120
_GUIDELINE, _FACT, _SUMMARY, _TURN, _SHORT = 400, 300, 1_600, 300, 160


def _guidelines(request: Request) -> list[Item]:
    """Return guidelines by priority; the nearest of a name hides the farther."""
    found: dict[str, tuple[int, Item]] = {}
    for level, memory in _in_each(request, lambda: Memory.objects.filter(kind=MemoryKind.GUIDELINE), "-priority"):
        found.setdefault(memory.title, (memory.priority or 0, _guideline(level, memory)))
    return [item for _, item in sorted(found.values(), key=lambda each: -each[0])]


def _guideline(level: Level, memory: Memory) -> Item:
    text = _titled(memory.title, memory.content, _GUIDELINE)
    return Item(_name(level, memory), f"- {_name(level, memory)} p{memory.priority} {memory.type}: {text}")


def _facts(request: Request) -> list[Item]:
    """Return what is known: what answers the question best, and then what changed last."""
    return without_repeats([*(_answering(request) if request.query else ()), *_latest(request)])


def _latest(request: Request) -> list[Item]:
    def facts() -> Any:
        return Memory.objects.exclude(kind=MemoryKind.GUIDELINE)

    found = list(_in_each(request, facts, "-updated_at"))
    found.sort(key=lambda each: (each[1].updated_at, each[1].id), reverse=True)
    return [_fact(level, memory) for level, memory in found]


def _answering(request: Request) -> list[Item]:
    question = MemorySearch(query=request.query, sources=[SearchSourceName.MEMORY])
    found: list[tuple[float, Item]] = []
    for level in request.chain:
        with use_store(level.store):
            scores = dict(engine.rank(question, "auto", level).hits[:_MOST])
            known = told(Memory.objects.live().filter(id__in=list(scores)).exclude(kind=MemoryKind.GUIDELINE))
            found += [(scores[memory.id], _fact(level, memory)) for memory in known]
    return [item for _, item in sorted(found, key=lambda each: (-each[0], each[1].reference))]


def _fact(level: Level, memory: Memory) -> Item:
    text = _titled(memory.title, memory.content, _FACT)
    what = memory.type if memory.kind == MemoryKind.OBSERVATION else f"{memory.kind}/{memory.type}"
    return Item(_name(level, memory), f"- {_name(level, memory)} {what} {memory.updated_at.date()} {text}")


def _conflicts(request: Request) -> list[Item]:
    """Return the conflicts that nobody has settled, the latest first."""
    found: list[Item] = []
    for level in request.chain:
        with use_store(level.store):
            open_ones = outside_quarantine(Conflict.objects.filter(resolved_at__isnull=True), "memory_id")
            opened = open_ones.select_related("memory").order_by("-id")[:_MOST]
            found += [_conflict(level, conflict) for conflict in opened if tells(conflict.memory)]
    return found


def _conflict(level: Level, conflict: Conflict) -> Item:
    memory = conflict.memory
    name = _reference(level, conflict.id)
    about = f"{_name(level, memory)} {one_line(memory.title, _TITLE)}"
    return Item(
        name, f"- {name} versions {conflict.version_a} and {conflict.version_b} of {about} were written at once"
    )


def _last_session(request: Request) -> list[Item]:
    ended = outside_quarantine(Session.objects.exclude(session_id=request.session_id).exclude(summary=""))
    last = ended.exclude(status=SessionStatus.DISCARDED).order_by(F("ended_at").desc(nulls_last=True), "-id").first()
    if last is None:
        return []
    when = (last.ended_at or last.started_at).date()
    summary = one_line(last.summary, _SUMMARY)
    return [Item(f"#{last.id}", f"- #{last.id} {when} by {last.agent or 'unknown'}: {summary}")]


def _turns(_: Request) -> list[Item]:
    """Return what users asked last."""
    found = rows.fetch(
        "SELECT e.position, e.occurred_at, json_extract(e.payload_json, '$.content') FROM raw_events e "
        f"WHERE e.event_type = 'message.user' AND e.payload_json IS NOT NULL "
        f"AND e.position {OUTSIDE} ORDER BY e.position DESC LIMIT 12"
    )
    return [
        Item(f"#{position}", f"- #{position} {occurred_at[:16]} {one_line(content, _TURN)}")
        for position, occurred_at, content in found
    ]


def _work(_: Request) -> list[Item]:
    """Return the open iteration and the latest commits."""
    return [*_open_iteration(), *_commits()]


def _open_iteration() -> Iterator[Item]:
    active = outside_quarantine(Iteration.objects.filter(status=IterationStatus.ACTIVE)).order_by("-id").first()
    if active:
        phase = f", now in phase {one_line(active.phase, 64)}" if active.phase else ""
        about = f"{one_line(active.command, 64)}: {one_line(active.description, _SHORT)}"
        yield Item(f"#{active.id}", f"- #{active.id} open iteration {about}{phase}")


def _commits() -> Iterator[Item]:
    for commit in outside_quarantine(Commit.objects.all()).order_by("-committed_at", "-id")[:8]:
        subject = one_line(commit.message.split("\n", 1)[0], _SHORT)
        yield Item(f"#{commit.id}", f"- #{commit.id} commit {commit.sha[:10]} {commit.committed_at.date()} {subject}")


def _in_each(request: Request, memories: Any, order: str) -> Iterator[tuple[Level, Memory]]:
    """Yield the live memories that hold, of each store in turn, the session's before the project's."""
    for level in request.chain:
        with use_store(level.store):
            found = memories().live().of_session(level.session_id)
            ordered = told(found, order=(order, "-id"), most=_MOST, now=request.now)
        ordered.sort(key=lambda memory: memory.scope != MemoryScope.SESSION)
        yield from ((level, memory) for memory in ordered)


def _name(level: Level, memory: Memory) -> str:
    return _reference(level, memory.id)


def _reference(level: Level, entity_id: int) -> str:
    widest = level.scopes[-1]
    return f"#{entity_id}" if widest in (MemoryScope.PROJECT, MemoryScope.SESSION) else f"{widest}#{entity_id}"


def _titled(title: str, content: str, longest: int) -> str:
    head, text = one_line(title, _TITLE), one_line(content, longest)
    return head if text == head else f"{head}: {text}"


def register(sections: Sequence[Section]) -> None:
    """Make the sections part of every pack."""
    for section in sections:
        define_section(section)


register(
    [
        Section("session", "Last session", 10, 0.25, 1_700, _last_session, "session_list"),
        Section("guidelines", "Guidelines, by priority", 20, 0.25, 600, _guidelines, "guideline_list"),
        Section("facts", "What is known", 40, 0.40, 500, _facts, "memory_search"),
        Section("conflicts", "Open conflicts", 50, 0.15, 300, _conflicts, "memory_conflicts"),
        Section("turns", "Asked lately", 60, 0.40, 400, _turns, "memory_timeline"),
        Section("work", "Work", 70, 1.0, 300, _work, "memory_timeline"),
    ]
)
