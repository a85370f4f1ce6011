"""The inbox: everything in the current store that waits for a person, of all types."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from itertools import groupby

from django.db.models import F, OuterRef, QuerySet, Subquery
from django.db.models.functions import Substr

from decisions.models import Decision
from governance.redaction.copies import last_look
from governance.staleness.selectors import count_stale
from governance.staleness.stale import moment_of, queue
from memories.models import Conflict, Memory, MemoryVersion, ReviewState
from memories.review.selectors import count_waiting
from memoryhub.core.log.quarantine import outside_quarantine
from memoryhub.core.text import counted, one_line

# Entries in a list; the counts are of all
MOST = 200
_TEXT = 160


class EntryType(StrEnum):
    PROPOSAL = "proposal"
    CONFLICT = "conflict"
    RECHECK = "recheck"
    SECRET = "secret"  # noqa: S105


@dataclass(frozen=True, slots=True)
class Entry:
    type: EntryType
    # Of the memory, the conflict, or the item to recheck; 0 for secrets, which are one entry
    id: int
    title: str
    text: str
    # Why it is here, in a few words
    why: str
    since: datetime | None = None
    # Where it was written, "" if outside any session
    session_id: str = ""
    # Of a proposed memory
    version: int = 0

    @property
    def key(self) -> str:
        return f"{self.type}-{self.id}"


def count_entries() -> dict[EntryType, int]:
    """Return the number of entries of each type that has any, in the order of their urgency."""
    counts = {
        EntryType.SECRET: 1 if _secrets_found() else 0,
        EntryType.CONFLICT: _open_conflicts().count(),
        EntryType.PROPOSAL: count_waiting(),
        EntryType.RECHECK: count_stale(),
    }
    return {name: count for name, count in counts.items() if count}


def list_entries(types: Collection[EntryType] = tuple(EntryType)) -> list[Entry]:
    """Return at most ``MOST`` entries: those of a session together, the oldest session first, the others last."""
    found = [entry for name, read in _READERS.items() if name in types for entry in read()]
    begins: dict[str, datetime] = {}
    for entry in found:
        if entry.since:
            begins[entry.session_id] = min(entry.since, begins.get(entry.session_id, entry.since))
    # Secrets lead, because they have no time and no session
    by_age = sorted(begins, key=lambda session_id: (not session_id, begins[session_id]))
    place = {session_id: number for number, session_id in enumerate(by_age)}
    found.sort(key=lambda entry: (place[entry.session_id], entry.since, entry.id) if entry.since else (-1,))
    return found[:MOST]


def by_session(entries: list[Entry]) -> list[tuple[str, list[Entry]]]:
    return [(session_id, list(group)) for session_id, group in groupby(entries, key=lambda entry: entry.session_id)]


def _proposals() -> Iterator[Entry]:
    written = MemoryVersion.objects.filter(memory_id=OuterRef("id"), version=OuterRef("version"))
    memories = Memory.objects.in_review(ReviewState.PROPOSED).order_by("updated_at", "id")
    rows = memories.annotate(
        text=Substr("content", 1, 2 * _TEXT), written_in=Subquery(written.values("session_id")[:1])
    ).values_list("id", "title", "text", "review_reason", "updated_at", "written_in", "version", "accepted_version")
    for memory_id, title, text, reason, updated, session_id, version, accepted in rows[:MOST]:
        why = "revision" if accepted else (reason or "returned to review")
        yield Entry(
            EntryType.PROPOSAL, memory_id, title, one_line(text, _TEXT), why, updated, session_id or "", version
        )


def _open_conflicts() -> QuerySet[Conflict]:
    return outside_quarantine(Conflict.objects.filter(resolved_at__isnull=True), "memory_id")


def _conflicts() -> Iterator[Entry]:
    written = MemoryVersion.objects.filter(memory_id=OuterRef("memory_id"), version=OuterRef("version_b"))
    rows = (
        _open_conflicts()
        .order_by("id")
        .annotate(about=F("memory__title"), written_in=Subquery(written.values("session_id")[:1]))
        .values_list("id", "about", "version_a", "version_b", "detected_at", "written_in")
    )
    for conflict_id, title, first, second, detected, session_id in rows[:MOST]:
        text = f"Version {second} was written without knowing version {first}."
        yield Entry(EntryType.CONFLICT, conflict_id, title, text, "conflict", detected, session_id or "")


def _rechecks() -> Iterator[Entry]:
    due = queue().due[:MOST]
    ids = [item.id for item in due]
    titles = dict(Memory.objects.filter(id__in=ids).values_list("id", "title"))
    titles |= dict(Decision.objects.filter(id__in=ids).values_list("id", "title"))
    for item in due:
        reasons = one_line("; ".join(reason.says for reason in item.reasons), _TEXT)
        yield Entry(EntryType.RECHECK, item.id, titles.get(item.id, ""), reasons, "recheck", moment_of(item.since))


def _secrets() -> Iterator[Entry]:
    if found := _secrets_found():
        text = "The current rules match texts that were stored before."
        yield Entry(EntryType.SECRET, 0, f"{counted(found, 'possible secret')} in older texts", text, "secret rules")


def _secrets_found() -> int:
    look = last_look()
    return look.finds if look else 0


_READERS: dict[EntryType, Callable[[], Iterator[Entry]]] = {
    EntryType.PROPOSAL: _proposals,
    EntryType.CONFLICT: _conflicts,
    EntryType.RECHECK: _rechecks,
    EntryType.SECRET: _secrets,
}
