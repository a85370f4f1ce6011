"""The inbox: everything in the current store that waits for a person, of all types."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from itertools import groupby

from django.db.models import OuterRef, QuerySet, Subquery
from django.db.models.functions import Substr

from decisions.models import Decision
from governance.redaction.copies import last_look
from governance.staleness.schemas import Why
from governance.staleness.selectors import StaleGroup, count_rechecks, grouped, queue
from memories.models import AmendmentKind, Conflict, Memory, MemoryVersion, ReviewState
from memories.review.selectors import count_waiting
from memories.selectors.amendments import open_amendments
from memories.worth.note_scores import DAYS, scores_off
from memoryhub.core.log.quarantine import outside_quarantine
from memoryhub.core.text import counted, one_line
from sessions_app.models import Session
from sessions_app.selectors import caller_tree

# Entries on a page of the list
MOST = 200
_TEXT = 160


class InboxItemType(StrEnum):
    PROPOSAL = "proposal"
    CONFLICT = "conflict"
    # Entries about one file that has changed or is gone, and those of one branch that was dropped
    FILE = "file"
    BRANCH = "branch"
    RECHECK = "recheck"
    AMENDMENT = "amendment"
    SECRET = "secret"  # noqa: S105
    NOTES = "notes"


@dataclass(frozen=True, slots=True)
class InboxItem:
    type: InboxItemType
    # Id of the memory, the conflict, the amendment, the item or group to recheck; 0 for secrets and notes, one each
    id: int
    # Why it is here, in a few words
    why: str
    # The memory or decision that it is about; 0 for secrets, kinds of notes and groups
    about: int = 0
    since: datetime | None = None
    # Where it was written, "" if outside any session
    session_id: str = ""
    # The version of a proposed memory
    version: int = 0
    # From the memory or decision; read for the entries of a page only, except where there is none
    kind: str = ""
    title: str = ""
    text: str = ""
    # The entries of a group
    group: tuple[int, ...] = ()

    @property
    def key(self) -> str:
        return f"{self.type}-{self.id}"


@dataclass(frozen=True, slots=True)
class InboxGroup:
    session_id: str
    purpose: str
    entries: list[InboxItem]


def count_entries() -> dict[InboxItemType, int]:
    """Return the number of entries of each type that has any, in the order of their urgency."""
    rechecks = count_rechecks()
    counts = {
        InboxItemType.SECRET: min(_secrets_found(), 1),
        InboxItemType.CONFLICT: _open_conflicts().count(),
        InboxItemType.PROPOSAL: count_waiting(),
        InboxItemType.AMENDMENT: len(open_amendments()),
        InboxItemType.FILE: rechecks.get(Why.CHANGED, 0),
        InboxItemType.BRANCH: rechecks.get(Why.DROPPED, 0),
        InboxItemType.RECHECK: rechecks.get(None, 0),
        InboxItemType.NOTES: min(len(scores_off()), 1),
    }
    return {name: count for name, count in counts.items() if count}


def open_entries(types: Collection[InboxItemType] = tuple(InboxItemType)) -> list[InboxItem]:
    """Return all entries, without texts: those of a session together, the oldest session first, the others last."""
    entries: list[InboxItem] = []
    for names, read in _READERS.items():
        if not set(names).isdisjoint(types):
            entries += [entry for entry in read() if entry.type in types]
    begins: dict[str, datetime] = {}
    for entry in entries:
        if entry.since:
            begins[entry.session_id] = min(entry.since, begins.get(entry.session_id, entry.since))
    # Secrets lead, because they have no time and no session
    by_age = sorted(begins, key=lambda session_id: (not session_id, begins[session_id]))
    place = {session_id: number for number, session_id in enumerate(by_age)}
    entries.sort(key=lambda entry: (place[entry.session_id], entry.since, entry.id) if entry.since else (-1,))
    return entries


def with_texts(entries: Collection[InboxItem]) -> list[InboxItem]:
    """Return entries with kind, title and text, without those whose memory was erased meanwhile; two queries."""
    ids = {entry.about for entry in entries}.union(*(entry.group for entry in entries))
    memories = Memory.objects.filter(id__in=ids).values_list("id", "kind", "title", Substr("content", 1, 2 * _TEXT))
    decisions = Decision.objects.filter(id__in=ids).values_list("id", "title", Substr("chosen", 1, 2 * _TEXT))
    heads = {memory_id: head for memory_id, *head in memories}
    heads |= {decision_id: ["decision", *head] for decision_id, *head in decisions}
    complete = []
    for entry in entries:
        if entry.group:
            titles = [heads[entity_id][1] for entity_id in entry.group if entity_id in heads]
            complete.append(replace(entry, text=one_line("; ".join(titles), _TEXT)))
        elif not entry.about:
            complete.append(entry)
        elif entry.about in heads:
            kind, title, text = heads[entry.about]
            complete.append(replace(entry, kind=kind, title=title, text=one_line(text, _TEXT)))
    return complete


def by_session(entries: list[InboxItem]) -> list[InboxGroup]:
    """Return entries in groups, each with the purpose of its session; one query."""
    ids = {entry.session_id for entry in entries if entry.session_id}
    purposes = dict(Session.objects.filter(session_id__in=ids).values_list("session_id", "purpose"))
    groups = []
    for session_id, group in groupby(entries, key=lambda entry: entry.session_id):
        purpose = one_line(purposes.get(session_id, ""), _TEXT)
        groups.append(InboxGroup(session_id, purpose, list(group)))
    return groups


def _proposals() -> Iterator[InboxItem]:
    written = MemoryVersion.objects.filter(memory_id=OuterRef("id"), version=OuterRef("version"))
    memories = Memory.objects.in_review(ReviewState.PROPOSED).annotate(
        written_in=Subquery(written.values("session_id")[:1])
    )
    rows = memories.values_list("id", "review_reason", "updated_at", "written_in", "version", "accepted_version")
    for memory_id, reason, updated, session_id, version, accepted in rows:
        why = "revision" if accepted else (reason or "returned to review")
        yield InboxItem(InboxItemType.PROPOSAL, memory_id, why, memory_id, updated, session_id or "", version)


def _open_conflicts() -> QuerySet[Conflict]:
    return outside_quarantine(Conflict.objects.filter(resolved_at__isnull=True), "memory_id")


def _conflicts() -> Iterator[InboxItem]:
    written = MemoryVersion.objects.filter(memory_id=OuterRef("memory_id"), version=OuterRef("version_b"))
    conflicts = _open_conflicts().annotate(written_in=Subquery(written.values("session_id")[:1]))
    rows = conflicts.values_list("id", "memory_id", "version_a", "version_b", "detected_at", "written_in")
    for conflict_id, memory_id, first, second, detected, session_id in rows:
        why = f"versions {first} and {second} were written from one version"
        yield InboxItem(InboxItemType.CONFLICT, conflict_id, why, memory_id, detected, session_id or "")


def _rechecks() -> Iterator[InboxItem]:
    groups, single = grouped(queue(tree=caller_tree()).due)
    for group in groups:
        yield _group_item(group)
    for item in single:
        why = one_line("; ".join(reason.says for reason in item.reasons), _TEXT)
        yield InboxItem(InboxItemType.RECHECK, item.id, why, item.id, item.moment)


def _group_item(group: StaleGroup) -> InboxItem:
    count = len(group.due)
    since = min(item.moment for item in group.due)
    if group.why is Why.DROPPED:
        why = f"{counted(count, 'entry', 'entries')} learnt on a branch that was dropped"
        return InboxItem(InboxItemType.BRANCH, group.id, why, since=since, title=group.name, group=tuple(group.ids))
    is_gone = all(reason.why is Why.GONE for item in group.due for reason in item.reasons if reason.name == group.name)
    why = f"{'gone' if is_gone else 'changed'}; {counted(count, 'entry is', 'entries are')} about it"
    return InboxItem(InboxItemType.FILE, group.id, why, since=since, title=group.name, group=tuple(group.ids))


def _amendments() -> Iterator[InboxItem]:
    for amendment in open_amendments():
        verb = AmendmentKind(amendment.kind).label.lower()
        why = f"{verb} #{amendment.older_id}"
        yield InboxItem(InboxItemType.AMENDMENT, amendment.id, why, amendment.newer_id, amendment.created_at)


def _secrets() -> Iterator[InboxItem]:
    if count := _secrets_found():
        text = "The current rules match texts that were stored before."
        title = f"{counted(count, 'possible secret')} in older texts"
        yield InboxItem(InboxItemType.SECRET, 0, "newer secret rules", title=title, text=text)


def _secrets_found() -> int:
    look = last_look()
    return look.finds if look else 0


def _kinds_off() -> Iterator[InboxItem]:
    if off := scores_off():
        counts = (f"{score.label}: {score.followed} of {score.judged} were followed" for score in off)
        text = f"{'; '.join(counts)}. They are given again when these notes are {DAYS} days old."
        title = f"{counted(len(off), 'kind')} of notes before actions switched off"
        yield InboxItem(InboxItemType.NOTES, 0, "seldom followed", title=title, text=text)


# What reads the items of some types
_READERS: dict[tuple[InboxItemType, ...], Callable[[], Iterator[InboxItem]]] = {
    (InboxItemType.PROPOSAL,): _proposals,
    (InboxItemType.CONFLICT,): _conflicts,
    (InboxItemType.AMENDMENT,): _amendments,
    (InboxItemType.FILE, InboxItemType.BRANCH, InboxItemType.RECHECK): _rechecks,
    (InboxItemType.SECRET,): _secrets,
    (InboxItemType.NOTES,): _kinds_off,
}
