from __future__ import annotations

import json
from collections.abc import Sequence

from memories import scopes
from memories.duplicates import Existing, review_status_of
from memories.events import ACCEPTED, MEMORY_REVIEWED, MemoryReviewed, Merged, ReviewStatus, Verdict, filled
from memories.models import Memory, MemoryScope, MemoryVersion, ReviewState
from memories.present import clause
from memories.review.schemas import ReviewEdit, ReviewMerge, ReviewOutcome, ReviewResult, ReviewTouch, ReviewVerdict
from memories.review.selectors import last_verdict
from memories.schemas import MemoryUpdate
from memories.selectors.memories import find_memory
from memories.selectors.versions import provenance_at, state_at
from memories.services.revise import append_version, live_memory, refuse_taken_title, update_memory
from memories.validity.trust import MERGE_DOOR, person_of, trusts_of
from memoryhub.core import log
from memoryhub.core.errors import ConflictError, Forbidden, HubError, Invalid, PreconditionFailed
from memoryhub.core.origin import PERSONS_DOORS, current_origin
from memoryhub.core.text import flat


def result_of(memory: Memory, payload: MemoryReviewed, redactions: Sequence[str] = ()) -> ReviewResult:
    """Return the answer to a review action."""
    return ReviewResult(
        id=memory.id,
        version=memory.version,
        title=memory.title,
        scope=MemoryScope(memory.scope),
        verdict=payload.verdict,
        review=ReviewState(memory.review),
        review_reason=memory.review_reason,
        merged_into=payload.merged.memory_id if payload.merged else None,
        redacted=list(redactions),
    )


def result_of_event(event: log.StoredEvent) -> ReviewResult:
    """Return the answer to a repeated call with the same idempotency key."""
    payload = MemoryReviewed.model_validate(json.loads(event.payload_json or "{}"))
    return result_of(find_memory(payload.memory_id), payload)


_MOST_TAGS = 32
_UNDONE = "verdict undone"


def review_memory(*, command: ReviewVerdict) -> ReviewResult:
    """Accept or reject a memory. Rejecting a revision makes the accepted version current again.

    A person may also accept a text that nobody was asked to review.

    Raises:
        NotFound: there is no such memory.
        Gone: it is deleted.
        ConflictError: it has that state already, or the title of the version to restore is taken.
        PreconditionFailed: it has changed since ``base_version``; the data has the current version.
        Forbidden: the caller wrote this version, and neither uses the admin nor has merged its branch.
    """
    with scopes.writing(command.scope), log.transaction():
        first = log.find_by_key(command.idempotency_key, MEMORY_REVIEWED)
        if first:
            return result_of_event(first)
        memory = _reviewed(command.id, command.base_version)
        refuse_author(memory.id)
        if command.verdict is Verdict.REJECTED:
            return _reject(memory, command)
        origin = current_origin()
        if not person_of(origin.actor, origin.source) or trusts_of([memory.id])[memory.id].accepted_by:
            _refuse_accepted(memory)
        return _record_verdict(memory, Verdict.ACCEPTED, command, ACCEPTED)


def refuse_author(entity_id: int) -> None:
    """Refuse a verdict on an entry by the one who wrote its last text: an agent must not accept its own writes.

    Raises:
        Forbidden: the caller wrote it, and neither uses the admin nor has merged its branch.
    """
    origin = current_origin()
    if origin.source in PERSONS_DOORS or origin.source == MERGE_DOOR:
        return
    versions = MemoryVersion.objects.filter(memory_id=entity_id).order_by("-version")
    position = versions.values_list("id", flat=True).first() or entity_id
    if log.events().at([position]).filter(actor=origin.actor).exists():
        raise Forbidden(
            f"{origin.actor} wrote the text of #{entity_id}; someone else must review it, or a person in the admin",
            id=entity_id,
        )


def review_many(*, commands: Sequence[ReviewVerdict]) -> list[ReviewOutcome]:
    """Give many verdicts; each is independent of the others."""
    outcomes: list[ReviewOutcome] = []
    for command in commands:
        try:
            outcome = ReviewOutcome(id=command.id, result=review_memory(command=command))
        except HubError as error:
            outcome = ReviewOutcome(id=command.id, refused=error.message)
        outcomes.append(outcome)
    return outcomes


def accept_edited(*, command: ReviewEdit) -> ReviewResult:
    """Edit a memory and accept it, in one transaction.

    Raises:
        NotFound, Gone, ConflictError, Invalid: as ``update_memory``.
        PreconditionFailed: it has changed since ``base_version``.
    """
    with scopes.writing(command.scope), log.transaction():
        first = log.find_by_key(command.idempotency_key, MEMORY_REVIEWED)
        if first:
            return result_of_event(first)
        memory = _reviewed(command.id, command.base_version)
        _refuse_accepted(memory)
        edit = command.model_copy(update={"idempotency_key": None, "must_be_current": True})
        result = update_memory(command=edit)
        note = ReviewTouch(id=memory.id, reason=command.change_reason, idempotency_key=command.idempotency_key)
        review = _record_verdict(memory, Verdict.ACCEPTED, note, ACCEPTED, version=result.version)
        return review.model_copy(update={"redacted": sorted({*review.redacted, *result.redacted})})


def merge_into(*, command: ReviewMerge) -> ReviewResult:
    """Add the text and tags of one memory to another as its next version, and reject the first.

    Raises:
        NotFound, Gone: as ``review_memory``, for either memory.
        ConflictError: either memory is rejected.
        PreconditionFailed: either memory has changed since the version that was reviewed.
        Invalid: both are the same memory.
    """
    with scopes.writing(command.scope), log.transaction():
        memory = _reviewed(command.id, command.base_version)
        if command.into == command.id:
            raise Invalid(f"#{command.id} cannot be merged into itself; name another memory, or accept it")
        target = _reviewed(command.into, command.into_version)
        if target.review == ReviewState.REJECTED:
            raise ConflictError(f"#{target.id} is rejected; name another memory, or accept it first", id=target.id)
        before = review_status_of(target)
        update = MemoryUpdate(
            id=target.id,
            scope=command.scope,
            base_version=target.version,
            must_be_current=True,
            content=memory.content if command.content is None else command.content,
            tags=list(dict.fromkeys(map(flat, [*target.tags, *memory.tags])))[:_MOST_TAGS],
            change_reason=f"merged from #{memory.id}",
        )
        result = update_memory(command=update)
        merged = Merged(memory_id=target.id, version=result.version, before_version=target.version, before=before)
        rejection = command.model_copy(update={"reason": command.reason or f"merged into #{target.id}"})
        review = _reject(memory, rejection, merged)
        return review.model_copy(update={"redacted": sorted({*review.redacted, *result.redacted})})


def withdraw_verdict(*, command: ReviewTouch, by: str = "") -> ReviewResult:
    """Undo the last verdict on a memory, and the merge that came with it.

    Args:
        command: the memory.
        by: who gave the verdict; default: anyone.

    Raises:
        NotFound: there is no such memory.
        Gone: it is deleted.
        ConflictError: there is no verdict, it is undone already, or someone else gave it.
        PreconditionFailed: the memory, or the one it was merged into, has changed since.
    """
    with scopes.writing(command.scope), log.transaction():
        memory = live_memory(command.id)
        last = last_verdict(memory.id)
        if last is None or last.payload.verdict is Verdict.WITHDRAWN:
            raise ConflictError(f"there is no verdict on #{memory.id} to undo", id=memory.id)
        if by and last.actor != by:
            raise ConflictError(
                f"the last verdict on #{memory.id} is of {last.actor}, so it was not undone", id=memory.id
            )
        verdict = last.payload
        _refuse_changed(memory, verdict.stands)
        if verdict.merged and verdict.merged.version != verdict.merged.before_version:
            target = live_memory(verdict.merged.memory_id)
            _refuse_changed(target, verdict.merged.version)
            _restore(target, verdict.merged.before_version, verdict.merged.before, _UNDONE)
        version = memory.version
        if verdict.stands != verdict.version:
            version = _restore(memory, verdict.version, verdict.before, _UNDONE)
        return _record_verdict(memory, Verdict.WITHDRAWN, command, verdict.before, version=version)


def _restore(memory: Memory, version: int, status: ReviewStatus, why: str) -> int:
    existing = Existing.of(memory)
    state = state_at(memory.id, version)
    refuse_taken_title(existing, state)
    reason = f"version {version} restored: {why}"
    provenance = provenance_at(memory.id, version)
    base = existing.version
    return append_version(existing, state, base=base, reason=reason, review=status, provenance=provenance).version


def _reject(memory: Memory, command: ReviewTouch, merged: Merged | None = None) -> ReviewResult:
    before = review_status_of(memory)
    if before.state is ReviewState.REJECTED:
        raise ConflictError(f"memory #{memory.id} is rejected already", id=memory.id, version=memory.version)
    if before.accepted_version is None:
        after = ReviewStatus(state=ReviewState.REJECTED, reason=command.reason)
        return _record_verdict(memory, Verdict.REJECTED, command, after, merged=merged)
    why = f"version {memory.version} rejected{clause(': ', command.reason)}"
    version = _restore(memory, before.accepted_version, ACCEPTED, why)
    return _record_verdict(memory, Verdict.REJECTED, command, ACCEPTED, version=version, merged=merged)


def _reviewed(memory_id: int, base_version: int | None) -> Memory:
    memory = live_memory(memory_id)
    if base_version not in (None, memory.version):
        raise PreconditionFailed(
            f"#{memory.id} is at version {memory.version} now, but you reviewed version {base_version}; read it again, "
            "then decide",
            id=memory.id,
            version=memory.version,
        )
    return memory


def _refuse_accepted(memory: Memory) -> None:
    if memory.review == ReviewState.ACCEPTED:
        raise ConflictError(f"memory #{memory.id} is accepted already", id=memory.id, version=memory.version)


def _refuse_changed(memory: Memory, version: int) -> None:
    if memory.version != version:
        raise PreconditionFailed(
            f"#{memory.id} has changed since the verdict and is at version {memory.version}; review that version",
            id=memory.id,
            version=memory.version,
        )


def _record_verdict(
    memory: Memory,
    verdict: Verdict,
    command: ReviewTouch,
    after: ReviewStatus,
    *,
    version: int | None = None,
    merged: Merged | None = None,
) -> ReviewResult:
    payload = MemoryReviewed(
        memory_id=memory.id,
        verdict=verdict,
        version=memory.version,
        stands=version or memory.version,
        reason=command.reason,
        before=review_status_of(memory),
        after=after,
        **filled(merged=merged),
    )
    draft = log.prepare(MEMORY_REVIEWED, payload)
    log.append(draft, stream=f"memory:{memory.id}", idempotency_key=command.idempotency_key)
    return result_of(find_memory(memory.id), draft.payload, draft.redactions)
