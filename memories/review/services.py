"""What a person says of a memory that waits: accepted, rejected, edited, merged; and her word taken back."""

from __future__ import annotations

import json
from collections.abc import Sequence

from memories import scopes
from memories.duplicates import Existing, review_status_of
from memories.events import MEMORY_REVIEWED, MemoryReviewed, Merged, ReviewStatus, Verdict
from memories.models import Memory, MemoryScope, MemoryVersion, ReviewState
from memories.projectors.memories import ACCEPTED
from memories.review.policy import PERSONS_DOOR
from memories.review.schemas import ReviewEdit, ReviewMerge, ReviewOutcome, ReviewResult, ReviewTouch, ReviewVerdict
from memories.review.selectors import last_verdict
from memories.schemas import MemoryUpdate
from memories.selectors.memories import find_memory
from memories.selectors.versions import state_at
from memories.services.results import live_memory, refuse_taken_title
from memories.services.revise import append_version, update_memory
from memoryhub.core import log
from memoryhub.core.errors import Conflict, Forbidden, HubError, Invalid, PreconditionFailed
from memoryhub.core.models import RawEvent
from memoryhub.core.origin import current_origin
from memoryhub.core.text import flat


def result_of(memory: Memory, said: MemoryReviewed, redactions: Sequence[str] = ()) -> ReviewResult:
    """Return how a memory stands after a verdict."""
    return ReviewResult(
        id=memory.id,
        version=memory.version,
        title=memory.title,
        scope=MemoryScope(memory.scope),
        verdict=said.verdict,
        review=ReviewState(memory.review),
        review_reason=memory.review_reason,
        merged_into=said.merged.memory_id if said.merged else None,
        redacted=list(redactions),
    )


def result_of_event(event: RawEvent) -> ReviewResult:
    """Return the first answer to a call that came again with its idempotency key."""
    said = MemoryReviewed.model_validate(json.loads(event.payload_json or "{}"))
    return result_of(find_memory(said.memory_id), said)


_MOST_TAGS = 32


def review_memory(*, command: ReviewVerdict) -> ReviewResult:
    """Accept or reject a memory. Where a revision is rejected, the version that was accepted before holds again.

    Raises:
        NotFound: there is no such memory.
        Gone: it is deleted.
        Conflict: it is accepted, or rejected, already; or the title of the version that is to hold again is taken.
        PreconditionFailed: it has changed since ``base_version``; the data names the present version.
        Forbidden: whoever calls wrote this version, and is no person at the admin.
    """
    with scopes.writing(command.scope), log.transaction():
        first = log.find_by_key(command.idempotency_key, MEMORY_REVIEWED)
        if first:
            return result_of_event(first)
        memory = _looked_at(command.id, command.base_version)
        _refuse_own(memory)
        if command.verdict is Verdict.REJECTED:
            return _reject(memory, command)
        _refuse_accepted(memory)
        return _give(memory, Verdict.ACCEPTED, command, ACCEPTED)


def review_many(*, commands: Sequence[ReviewVerdict]) -> list[ReviewOutcome]:
    """Give many verdicts; each that is refused says why and leaves the others as they are."""
    return [_outcome(command) for command in commands]


def _outcome(command: ReviewVerdict) -> ReviewOutcome:
    try:
        return ReviewOutcome(id=command.id, result=review_memory(command=command))
    except HubError as error:
        return ReviewOutcome(id=command.id, refused=error.message)


def accept_edited(*, command: ReviewEdit) -> ReviewResult:
    """Change a memory and accept it so: both or neither.

    Raises:
        NotFound, Gone, Conflict, Invalid: as ``update_memory``.
        PreconditionFailed: it has changed since ``base_version``.
    """
    with scopes.writing(command.scope), log.transaction():
        first = log.find_by_key(command.idempotency_key, MEMORY_REVIEWED)
        if first:
            return result_of_event(first)
        memory = _looked_at(command.id, command.base_version)
        _refuse_accepted(memory)
        edit = command.model_copy(update={"idempotency_key": None, "must_be_current": True})
        result = update_memory(command=edit)
        note = ReviewTouch(id=memory.id, reason=command.change_reason, idempotency_key=command.idempotency_key)
        given = _give(memory, Verdict.ACCEPTED, note, ACCEPTED, stands=result.version)
        return given.model_copy(update={"redacted": sorted({*given.redacted, *result.redacted})})


def merge_into(*, command: ReviewMerge) -> ReviewResult:
    """Let another memory take over a text as its next version, with its tags; the one that had it is rejected.

    Raises:
        NotFound, Gone: as ``review_memory``, of either.
        Conflict: the one that is to take it over is rejected itself, or this one is rejected already.
        PreconditionFailed: either has changed since the version that was looked at.
        Invalid: both are one.
    """
    with scopes.writing(command.scope), log.transaction():
        memory = _looked_at(command.id, command.base_version)
        target = _target(command)
        before = review_status_of(target)
        tags = list(dict.fromkeys(map(flat, [*target.tags, *memory.tags])))[:_MOST_TAGS]
        update = MemoryUpdate(
            id=target.id,
            scope=command.scope,
            base_version=target.version,
            must_be_current=True,
            content=memory.content if command.content is None else command.content,
            tags=tags,
            change_reason=f"merged from #{memory.id}",
        )
        result = update_memory(command=update)
        merged = Merged(memory_id=target.id, version=result.version, before_version=target.version, before=before)
        said = command.model_copy(update={"reason": command.reason or f"merged into #{target.id}"})
        given = _reject(memory, said, merged)
        return given.model_copy(update={"redacted": sorted({*given.redacted, *result.redacted})})


def _target(command: ReviewMerge) -> Memory:
    if command.into == command.id:
        raise Invalid(f"#{command.id} cannot be merged into itself; name another memory, or accept it")
    target = _looked_at(command.into, command.into_version)
    if target.review == ReviewState.REJECTED:
        raise Conflict(f"#{target.id} is rejected; name a memory that is not, or accept it first", id=target.id)
    return target


def withdraw_verdict(*, command: ReviewTouch) -> ReviewResult:
    """Take the last verdict on a memory back: it stands as before, and so does what it was merged into.

    Raises:
        NotFound: there is no such memory.
        Gone: it is deleted.
        Conflict: nobody has given a verdict on it, or it is taken back already.
        PreconditionFailed: it has changed since, or what it was merged into has.
    """
    with scopes.writing(command.scope), log.transaction():
        memory = live_memory(command.id)
        given = last_verdict(memory.id)
        if given is None or given.payload.verdict is Verdict.WITHDRAWN:
            raise Conflict(f"there is no verdict on #{memory.id} to take back", id=memory.id)
        said = given.payload
        _refuse_changed(memory, said.stands)
        if said.merged and said.merged.version != said.merged.before_version:
            _unmerge(said.merged)
        stands = _bring_back(memory, said.version, said.before) if said.stands != said.version else memory.version
        return _give(memory, Verdict.WITHDRAWN, command, said.before, stands=stands)


def _unmerge(merged: Merged) -> None:
    target = live_memory(merged.memory_id)
    _refuse_changed(target, merged.version)
    _bring_back(target, merged.before_version, merged.before)


def _bring_back(memory: Memory, version: int, standing: ReviewStatus) -> int:
    """Make an earlier version the current one again, as a new version, and return its number."""
    existing = Existing.of(memory)
    state = state_at(memory.id, version)
    refuse_taken_title(existing, state)
    reason = f"version {version} again: the verdict was taken back"
    return append_version(existing, state, base=existing.version, reason=reason, key=None, standing=standing).version


def _reject(memory: Memory, command: ReviewTouch, merged: Merged | None = None) -> ReviewResult:
    before = review_status_of(memory)
    if before.state is ReviewState.REJECTED:
        raise Conflict(f"memory #{memory.id} is rejected already", id=memory.id, version=memory.version)
    if before.accepted_version is None:
        after = ReviewStatus(state=ReviewState.REJECTED, reason=command.reason)
        return _give(memory, Verdict.REJECTED, command, after, merged=merged)
    existing = Existing.of(memory)
    state = state_at(memory.id, before.accepted_version)
    refuse_taken_title(existing, state)
    why = f": {command.reason}" if command.reason else ""
    reason = f"version {before.accepted_version} again: version {memory.version} was rejected{why}"
    stands = append_version(existing, state, base=existing.version, reason=reason, key=None, standing=ACCEPTED).version
    return _give(memory, Verdict.REJECTED, command, ACCEPTED, stands=stands, merged=merged)


def _looked_at(memory_id: int, base_version: int | None) -> Memory:
    memory = live_memory(memory_id)
    if base_version not in (None, memory.version):
        raise PreconditionFailed(
            f"#{memory.id} is at version {memory.version} now, and you looked at version {base_version}; look at it "
            "again, then decide",
            id=memory.id,
            version=memory.version,
        )
    return memory


def _refuse_accepted(memory: Memory) -> None:
    if memory.review == ReviewState.ACCEPTED:
        raise Conflict(f"memory #{memory.id} is accepted already", id=memory.id, version=memory.version)


def _refuse_own(memory: Memory) -> None:
    """Refuse a verdict on what one has written oneself: an agent that may write could let pass whatever it likes."""
    origin = current_origin()
    if origin.source == PERSONS_DOOR:
        return
    written = MemoryVersion.objects.filter(memory_id=memory.id, version=memory.version, actor=origin.actor)
    if written.exists():
        raise Forbidden(
            f"{origin.actor} has written version {memory.version} of #{memory.id} itself; somebody else reviews it, or "
            "a person in the admin",
            id=memory.id,
        )


def _refuse_changed(memory: Memory, version: int) -> None:
    if memory.version != version:
        raise PreconditionFailed(
            f"#{memory.id} has changed since the verdict, and is at version {memory.version}; review it as it is now",
            id=memory.id,
            version=memory.version,
        )


def _give(
    memory: Memory,
    verdict: Verdict,
    command: ReviewTouch,
    after: ReviewStatus,
    *,
    stands: int | None = None,
    merged: Merged | None = None,
) -> ReviewResult:
    payload = MemoryReviewed(
        memory_id=memory.id,
        verdict=verdict,
        version=memory.version,
        stands=stands or memory.version,
        reason=command.reason,
        before=review_status_of(memory),
        after=after,
        **({"merged": merged} if merged else {}),
    )
    draft = log.prepare(MEMORY_REVIEWED, payload)
    log.append(draft, stream=f"memory:{memory.id}", idempotency_key=command.idempotency_key)
    return result_of(find_memory(memory.id), draft.payload, draft.redactions)
