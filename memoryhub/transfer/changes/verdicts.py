"""Accept what a branch learnt when it is merged, or drop it when it is closed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from decisions.models import Decision, DecisionStatus
from decisions.schemas import DecisionMark
from decisions.services import mark_decision
from memories.events import Verdict
from memories.models import Memory, ReviewState
from memories.review.schemas import ReviewVerdict
from memories.review.services import review_memory
from memories.schemas import MemoryRestore, MemoryTouch
from memories.services import delete_memory, restore_memory
from memories.validity.trust import MERGE_DOOR, trusts_of
from memoryhub.core.errors import ConflictError, Forbidden, HubError, NotFound
from memoryhub.core.origin import use_origin
from memoryhub.core.permissions import Act, demand
from memoryhub.core.text import flat
from memoryhub.core.windows import session_of, window
from memoryhub.transfer.changes.report import ChangeKind, ChangeReport, EntryChange
from memoryhub.transfer.mirror.store import MirrorListing


@dataclass(frozen=True, slots=True)
class VerdictStep:
    id: int
    title: str
    # ``accepted``, ``deleted``, ``rejected``, ``restored``; or ``left``
    did: str
    why: str = ""


def accept_changes(report: ChangeReport) -> list[VerdictStep]:
    """Accept the entries of a report in the current store, each with the text that the report has.

    The person who merges has read that text, so it counts as reviewed by them.

    Raises:
        Forbidden: the caller may not review, or is a client's session.
    """
    _require_person("accept")
    changes = [change for change in report.results if change.change is not ChangeKind.REMOVED]
    if report.folder:
        changes = _numbered(changes)
    return [_try(change, report, _accept) for change in changes]


def drop_changes(report: ChangeReport) -> list[VerdictStep]:
    """Take back what the store learnt on a branch only: new memories are deleted, new texts and decisions rejected.

    All of it can be undone: with ``memory_restore``, or a verdict on the decision.

    Raises:
        Forbidden: the caller may not review, or is a client's session.
    """
    _require_person("drop")
    return [_try(change, report, _drop) for change in report.results]


# A client's commands have the rights of the person whose terminal it is
def _require_person(what: str) -> None:
    demand(Act.REVIEW, to=f"{what} what a branch learnt")
    if session_of(window()):
        raise Forbidden(
            f"a client's session runs this command, and only a person can {what} memories; use a terminal of your own"
        )


def _try(change: EntryChange, report: ChangeReport, act: Callable[[EntryChange, ChangeReport], str]) -> VerdictStep:
    title = flat(change.text.title)
    try:
        return VerdictStep(change.id, title, act(change, report))
    except HubError as error:
        return VerdictStep(change.id, title, "left", error.message)


# Ids differ between hubs
def _numbered(changes: list[EntryChange]) -> list[EntryChange]:
    listing = MirrorListing()
    ids = listing.memory_ids | listing.decision_ids
    return [replace(change, id=ids.get(change.uid, 0)) for change in changes]


def _accept(change: EntryChange, report: ChangeReport) -> str:
    if not change.id:
        raise NotFound(f"{change.path} is not in this store; run `memory-hub mirror {report.folder}` first")
    reason = f"merged: {report.range}"
    if change.thing == "decision":
        if Decision.objects.get(id=change.id).status != DecisionStatus.PROPOSED:
            raise ConflictError(f"decision #{change.id} is not proposed", id=change.id)
        mark_decision(command=DecisionMark(id=change.id, status=DecisionStatus.ACCEPTED, reason=reason))
    else:
        version = _memory_with_text(change).version
        verdict = ReviewVerdict(id=change.id, base_version=version, verdict=Verdict.ACCEPTED, reason=reason)
        with use_origin(source=MERGE_DOOR):
            review_memory(command=verdict)
    return "accepted"


# A person accepts the text that they have seen, and no later one
def _memory_with_text(change: EntryChange) -> Memory:
    memory: Memory = Memory.objects.get(id=change.id)
    is_same = memory.version == change.version
    if change.path and change.after:
        text = memory.content.replace("\r\n", "\n").replace("\r", "\n").strip("\n")
        is_same = (flat(memory.title).strip(), text) == (change.after.title, change.after.text)
    if not is_same:
        raise ConflictError(f"#{memory.id} has another text since; review it in the inbox", id=memory.id)
    return memory


def _drop(change: EntryChange, report: ChangeReport) -> str:
    reason = f"dropped with its branch: {report.range}"
    if change.change is ChangeKind.REMOVED:
        raise ConflictError("it was removed; `memory_restore` brings it back")
    if not change.is_bound:
        raise ConflictError("it was learnt at a commit that the other end of the range has too")
    if change.thing == "decision":
        mark_decision(command=DecisionMark(id=change.id, status=DecisionStatus.REJECTED, reason=reason))
        return "rejected"
    memory = _memory_with_text(change)
    if reviewer := trusts_of([memory.id])[memory.id].accepted_by:
        raise ConflictError(f"{reviewer} has accepted this text", id=memory.id)
    if change.change is ChangeKind.ADDED:
        delete_memory(command=MemoryTouch(id=change.id, reason=reason))
        return "deleted"
    if memory.review == ReviewState.PROPOSED:
        verdict = ReviewVerdict(id=change.id, base_version=memory.version, verdict=Verdict.REJECTED, reason=reason)
        review_memory(command=verdict)
        return "rejected"
    restore_memory(command=MemoryRestore(id=change.id, version=change.base_version, reason=reason))
    return "restored"
