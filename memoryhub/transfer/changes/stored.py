"""What a store learnt in a range of commits."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from decisions.events import DECISION_RECORDED
from decisions.exporting import madr_document
from decisions.models import Decision, DecisionStatus
from decisions.selectors import views as decision_views
from memories.events import MEMORY_DELETED, MEMORY_REVISED, MEMORY_WRITTEN, MemoryState
from memories.models import Memory, MemoryScope, MemoryVersion, ReviewState
from memories.validity.branches import where_merged
from memoryhub.core import log
from memoryhub.core.errors import Unavailable
from memoryhub.core.log.quarantine import outside_quarantine
from memoryhub.core.log.read import as_parameter, entity_of_stream
from memoryhub.core.stores.dialect import IDS, TEXTS, has_part
from memoryhub.transfer.authorship import Authorship, authorships
from memoryhub.transfer.changes.report import ChangeKind, ChangeReport, EntryChange, EntryText
from memoryhub.transfer.mirror import files
from sessions_app.git.ranges import CommitRange
from sessions_app.git.worktree import WorkingTree, working_tree_at
from sessions_app.models import Commit

# As canonical JSON has it
_HAS_PROVENANCE = '"provenance":{'


def stored_changes(span: CommitRange) -> ChangeReport:
    """Return what the current store learnt in a range of commits.

    A text belongs to the range if its end has the work in which the text was written, or is the branch of that work,
    and its beginning lacks it.
    """
    report = ChangeReport(span.name, span.base, span.head, span.branch, "")
    learnt = _learnt(span)
    written = authorships({entity_id: entry.positions[-1] for entity_id, entry in learnt.items()})
    report.results += _memory_changes(learnt, written)
    report.results += _decision_changes(learnt, written)
    report.results += _removals(span, learnt)
    return report


class _LearntText(NamedTuple):
    """A text of an entry, and where it was learnt."""

    # Id of the entry
    id: int
    commit: str
    branch: str
    has_edits: bool
    position: int
    session_id: str
    event_type: str


@dataclass(slots=True)
class _LearntEntry:
    """An entry of which a range has a text."""

    is_decision: bool = False
    # Whether the range begins with it
    is_new: bool = False
    # Whether it is about what the other end of the range lacks
    is_bound: bool = False
    # The events that wrote its texts
    positions: list[int] = field(default_factory=list)
    sessions: set[str] = field(default_factory=set)


def _learnt(span: CommitRange) -> dict[int, _LearntEntry]:
    learnt: dict[int, _LearntEntry] = {}
    for texts in _rounds():
        at_base = where_merged(texts, _tree_at(span, span.base, span.base_branch))
        at_head = where_merged(texts, _tree_at(span, span.head, span.branch))
        for text in texts:
            is_in_base = at_base[text.id] is True
            if is_in_base and not _is_before_first_commit(text, span):
                continue
            if at_head[text.id] is True or (text.branch and text.branch == span.branch):
                entry = learnt.setdefault(text.id, _LearntEntry())
                entry.is_decision = text.event_type == DECISION_RECORDED.name
                entry.is_new |= text.event_type != MEMORY_REVISED.name
                entry.is_bound |= not is_in_base
                entry.positions.append(text.position)
                entry.sessions.add(text.session_id)
    return learnt


# In each round one text of an entry, the earliest first
def _rounds() -> list[list[_LearntText]]:
    events = log.events().of_type(MEMORY_WRITTEN, MEMORY_REVISED, DECISION_RECORDED)
    events = events.filter(has_part("payload_json", _HAS_PROVENANCE))
    rounds: list[list[_LearntText]] = []
    counts: dict[int, int] = {}
    for event in events.iterator():
        provenance = json.loads(event.payload_json or "{}").get("provenance") or {}
        if not provenance.get("commit"):
            continue
        entity_id = entity_of_stream(event.stream_id, event.position)
        number = counts.get(entity_id, 0)
        counts[entity_id] = number + 1
        if number == len(rounds):
            rounds.append([])
        rounds[number].append(
            _LearntText(
                entity_id,
                provenance["commit"],
                provenance.get("branch", ""),
                provenance.get("has_edits", False),
                event.position,
                event.session_id,
                event.event_type,
            )
        )
    return rounds


def _tree_at(span: CommitRange, head: str, branch: str) -> WorkingTree:
    checkout = working_tree_at(span.top)
    if checkout is None:
        raise Unavailable(f"{span.top} is no working tree any more")
    return replace(checkout, head=head, branch=branch)


# The other end has that commit too, but what was learnt there was learnt on the branch
def _is_before_first_commit(text: _LearntText, span: CommitRange) -> bool:
    is_begun = bool(span.commits) and span.base_branch not in ("", span.branch)
    return is_begun and text.commit == span.fork and text.branch == span.branch


def _memory_changes(learnt: Mapping[int, _LearntEntry], written: Mapping[int, Authorship]) -> Iterator[EntryChange]:
    ids = [entity_id for entity_id, entry in learnt.items() if not entry.is_decision]
    versions = _versions(ids)
    payloads = log.events().at(position for numbers in versions.values() for position in numbers).payloads()
    memories = Memory.objects.outside_quarantine().filter(id__in=as_parameter(IDS, ids))
    for memory in memories.exclude(scope=MemoryScope.SESSION).order_by("id"):
        entry = learnt[memory.id]
        numbers = versions[memory.id]
        is_gone = memory.deleted_at is not None or memory.review == ReviewState.REJECTED
        if is_gone and entry.is_new:
            continue
        base = max((position for position in numbers if position < entry.positions[0]), default=0)
        last = entry.positions[-1]
        before = _text_of(payloads.get(base))
        after = None if is_gone else _text_of(payloads.get(last))
        if before is None and after is None:
            continue
        yield EntryChange(
            change=_kind_of(entry, is_gone=is_gone),
            thing="memory",
            id=memory.id,
            path="",
            before=before,
            after=after,
            authorship=written[memory.id],
            is_proposed=memory.review == ReviewState.PROPOSED,
            is_bound=entry.is_bound,
            base_version=numbers.get(base, 0),
            version=numbers.get(last, memory.version),
        )


def _kind_of(entry: _LearntEntry, *, is_gone: bool) -> ChangeKind:
    if is_gone:
        return ChangeKind.REMOVED
    return ChangeKind.ADDED if entry.is_new else ChangeKind.CHANGED


# For each memory the numbers of its versions, by the positions of their events
def _versions(ids: Sequence[int]) -> dict[int, dict[int, int]]:
    numbers: dict[int, dict[int, int]] = {memory_id: {} for memory_id in ids}
    versions = MemoryVersion.objects.filter(memory_id__in=as_parameter(IDS, ids)).order_by("id")
    for position, memory_id, version in versions.values_list("id", "memory_id", "version"):
        numbers[memory_id][position] = version
    return numbers


# None for a text that was erased
def _text_of(values: Mapping[str, Any] | None) -> EntryText | None:
    if not values:
        return None
    state = MemoryState.of_stored(values)
    facts = [state.kind, state.known_type]
    if state.tags:
        facts.append(f"tags: {', '.join(sorted(state.tags))}")
    return EntryText(state.title, ", ".join(facts), state.content)


# The text of a decision never changes
def _decision_changes(learnt: Mapping[int, _LearntEntry], written: Mapping[int, Authorship]) -> Iterator[EntryChange]:
    ids = [entity_id for entity_id, entry in learnt.items() if entry.is_decision]
    decisions = outside_quarantine(Decision.objects.filter(id__in=as_parameter(IDS, ids))).order_by("id")
    for view in decision_views(list(decisions.exclude(status=DecisionStatus.REJECTED)), with_heads=False):
        document = files.parse(madr_document(view, {}).encode())
        yield EntryChange(
            change=ChangeKind.ADDED,
            thing="decision",
            id=view["id"],
            path="",
            before=None,
            after=EntryText(view["title"], f"decision, {view['status']}", document.content),
            authorship=written[view["id"]],
            is_proposed=view["status"] == DecisionStatus.PROPOSED,
            is_bound=learnt[view["id"]].is_bound,
        )


# A deletion has no working tree: it belongs to the range if its session wrote or committed something of it
def _removals(span: CommitRange, learnt: Mapping[int, _LearntEntry]) -> Iterator[EntryChange]:
    sessions = {session_id for entry in learnt.values() for session_id in entry.sessions}
    commits = Commit.objects.filter(sha__in=as_parameter(TEXTS, span.commits)).values_list("id", flat=True)
    sessions |= set(log.events().at(commits).order_by().values_list("session_id", flat=True))
    deletions = log.events().of_type(MEMORY_DELETED).of_session(*(sessions - {""}))
    events = {payload["memory_id"]: position for position, payload in deletions.payloads().items()}
    gone = Memory.objects.outside_quarantine().filter(id__in=as_parameter(IDS, events), deleted_at__isnull=False)
    written = authorships(events)
    for memory in gone.exclude(scope=MemoryScope.SESSION).order_by("id"):
        if memory.id not in learnt:
            yield EntryChange(
                change=ChangeKind.REMOVED,
                thing="memory",
                id=memory.id,
                path="",
                before=_text_of(vars(memory)),
                after=None,
                authorship=replace(written[memory.id], branch=span.branch, commit=""),
                is_bound=False,
            )
