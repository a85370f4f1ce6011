"""New versions of a memory, and the results of writes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db.models import F

from memories import scopes
from memories.duplicates import Existing, ExistingMemories, review_status_of
from memories.embeddings.meaning import renewal
from memories.events import (
    MEMORY_DELETED,
    MEMORY_RESTORED,
    MEMORY_REVISED,
    MEMORY_SEEN,
    MEMORY_WRITTEN,
    MemoryRevised,
    MemoryState,
    MemoryWritten,
    ReviewStatus,
)
from memories.kinds import check_attributes, check_type
from memories.models import Memory, MemoryScope, MemoryVersion
from memories.pack.sections import refuse_echo
from memories.projectors import ACCEPTED
from memories.review.policy import ReviewGate
from memories.schemas import Embedding, MemoryRestore, MemoryUpdate, WriteResult, WriteStatus
from memories.selectors.memories import find_memory
from memories.selectors.versions import state_at
from memoryhub.config.current_settings import project_settings
from memoryhub.config.project_settings import ProjectSettings
from memoryhub.core import clock, log
from memoryhub.core.contributions import define_scratch
from memoryhub.core.errors import Conflict, Gone, Invalid, PreconditionFailed
from memoryhub.core.log import Draft
from memoryhub.core.log.quarantine import quarantine_marks
from memoryhub.core.models import RawEvent

_CHANGEABLE = {"title", "content", "type", "tags", "author", "source", "resource_links"}


def update_memory(*, command: MemoryUpdate, window: timedelta | None = None) -> WriteResult:
    """Change parts of a memory; without an actual change no version is made.

    A change based on an older version is stored next to the current one as a conflict, if the first version that the
    writer missed is younger than the conflict window; otherwise it is refused (decision 15). ``window`` replaces the
    project's conflict window.

    Raises:
        NotFound: there is no such memory.
        Gone: it is deleted.
        PreconditionFailed: ``base_version`` is not current, and the window has passed; the data has the current one.
        Conflict: another memory has the new title.
        Invalid: the kind has no such type or attribute, or there is nothing to promote.
    """
    seconds = 0 if command.must_be_current else project_settings().conflict_window_seconds
    window = timedelta(seconds=seconds) if window is None else window
    with scopes.writing(command.scope), log.transaction():
        first = log.find_by_key(command.idempotency_key, MEMORY_REVISED)
        if first:
            return result_of(first)
        memory = live_memory(command.id)
        existing, unseen = Existing.of(memory), _unseen(memory, command.base_version, window)
        read = existing.state if unseen is None else state_at(memory.id, command.base_version or 1)
        state = _changed(read, command)
        if not existing.differs(_clean(state)):
            return with_memory(kept(existing, WriteStatus.UNCHANGED))
        if (state.title, state.scope) != (existing.state.title, existing.state.scope):
            refuse_taken_title(existing, state)
        base = command.base_version or existing.version
        result = append_version(
            existing, state, base=base, reason=command.change_reason, key=command.idempotency_key, unseen=unseen
        )
        return with_memory(result)


def restore_version(*, command: MemoryRestore) -> WriteResult:
    """Make an earlier version current again, as a new version.

    Raises:
        NotFound: there is no such memory or version.
        Gone: the memory is deleted.
        Conflict: another memory has the title of that version.
    """
    with scopes.writing(command.scope), log.transaction():
        first = log.find_by_key(command.idempotency_key, MEMORY_REVISED)
        if first:
            return result_of(first)
        existing = Existing.of(live_memory(command.id))
        state = state_at(command.id, command.version or existing.version)
        if not existing.differs(state):
            return with_memory(kept(existing, WriteStatus.UNCHANGED))
        refuse_taken_title(existing, state)
        reason = command.reason or f"version {command.version} restored"
        result = append_version(existing, state, base=existing.version, reason=reason, key=command.idempotency_key)
        return with_memory(result)


def append_version(
    existing: Existing,
    state: MemoryState,
    *,
    base: int,
    reason: str,
    key: str | None,
    unseen: int | None = None,
    review: ReviewStatus | None = None,
    revised_at: str | None = None,
) -> WriteResult:
    """Append the next version of ``existing``; needs an open transaction of the log.

    Args:
        existing: the memory; advanced to the new version.
        state: the new state.
        base: the version it is based on.
        reason: of the change.
        key: idempotency key of the call.
        unseen: the version that the writer missed, which makes it a conflict.
        review: review status; default: as the project's policy decides.
        revised_at: when another tool made the change; default: now.
    """
    review = review or ReviewGate.current().of_revision(existing, state)
    fields = state.columns() | {"attributes": state.attributes}
    payload = MemoryRevised(
        **fields,
        memory_id=existing.id,
        version=existing.version + 1,
        base_version=base,
        reason=reason,
        **({} if unseen is None else {"conflicts_with": unseen}),
        **({} if review in (None, ACCEPTED) else {"review": review}),
        **({"revised_at": revised_at} if revised_at else {}),
    )
    draft = log.prepare(MEMORY_REVISED, payload)
    event = log.append(draft, stream=f"memory:{existing.id}", idempotency_key=key)
    same_text = (existing.state.title, existing.state.content) == (draft.payload.title, draft.payload.content)
    existing.revised(draft.payload, draft.payload.review)
    status = WriteStatus.UPDATED if unseen is None else WriteStatus.CONFLICT
    result = with_review_status(written(existing.id, existing.version, status, draft.payload, draft), review)
    embedding = {"embedding": Embedding.KEPT} if same_text else {}
    opened = {} if unseen is None else {"conflict": event.position}
    return with_embedding([result.model_copy(update={**embedding, **opened})])[0]


# The version that a writer who read ``base`` has missed, or None. Refuses the change once the conflict window has
# passed (decision 15).
def _unseen(memory: Memory, base: int | None, window: timedelta) -> int | None:
    if base is None or base == memory.version:
        return None
    missed = MemoryVersion.objects.filter(memory_id=memory.id, version=base + 1).first()
    if missed and abs(clock.now() - missed.created_at) < window:
        return int(memory.version)
    raise PreconditionFailed(
        f"#{memory.id} is at version {memory.version}, but you read version {base}; read it again, then update",
        id=memory.id,
        version=memory.version,
    )


def _changed(before: MemoryState, command: MemoryUpdate) -> MemoryState:
    refuse_echo(command.content or "")
    changes: dict[str, Any] = command.model_dump(include=_CHANGEABLE, exclude_none=True)
    if command.type is not None:
        changes["type"] = check_type(before.kind, command.type)
    if command.attributes is not None:
        changes["attributes"] = check_attributes(before.kind, {**before.attributes, **command.attributes})
    if command.promote:
        changes["scope"] = _promoted(before)
    return MemoryState(**{**before.columns(), **changes})


def _promoted(before: MemoryState) -> MemoryScope:
    if before.scope is not MemoryScope.SESSION:
        raise Invalid(
            f"promote is for memories in scope session, but this one is in scope {before.scope}; to copy it elsewhere, "
            "use memory_write"
        )
    return MemoryScope.PROJECT


# A title or topic that the project has already gives way, so that no entry is lost.
def promote_entries(ids: Sequence[int]) -> None:
    """Move memories of a scratch session from the session to the project; needs an open transaction of the log."""
    found = Memory.objects.live().filter(id__in=ids, scope=MemoryScope.SESSION).order_by("id")
    moving = [Existing.of(memory) for memory in found]
    states = [MemoryState(**{**existing.state.columns(), "scope": MemoryScope.PROJECT}) for existing in moving]
    taken = ExistingMemories(states, session_id="") if states else None
    for existing, state in zip(moving, states, strict=True):
        is_taken = taken and (taken.of_topic(state) if state.topic_key else taken.of_title(state))
        name = {"title": f"{state.title[:180]} (#{existing.id})", "topic_key": None} if is_taken else {}
        reason = "promoted at the end of its scratch session"
        append_version(existing, state.model_copy(update=name), base=existing.version, reason=reason, key=None)


def scratch_entries(session_id: str) -> dict[int, str]:
    """Return the titles of the live memories of a scratch session that has not ended, by id."""
    found = Memory.objects.live().filter(session_id=session_id, ephemeral=True).order_by("id")
    return dict(found.values_list("id", "title"))


define_scratch(scratch_entries, promote_entries)


def _clean(state: MemoryState) -> MemoryState:
    return log.prepare(MEMORY_WRITTEN, MemoryWritten(**state.columns())).payload


_STATUS_OF_EVENT = {
    MEMORY_WRITTEN.name: WriteStatus.CREATED,
    MEMORY_REVISED.name: WriteStatus.UPDATED,
    MEMORY_SEEN.name: WriteStatus.SEEN,
    MEMORY_DELETED.name: WriteStatus.DELETED,
    MEMORY_RESTORED.name: WriteStatus.RESTORED,
}


_TEXT_WRITTEN = {WriteStatus.CREATED, WriteStatus.UPDATED, WriteStatus.RESTORED, WriteStatus.CONFLICT}


def with_embedding(results: Sequence[WriteResult], settings: ProjectSettings | None = None) -> list[WriteResult]:
    """Return the results with the state of the embedding of what they wrote; reads ``settings`` if not given."""
    if not any(map(_lacks_embedding, results)):
        return list(results)
    update = {"embedding": renewal(settings)}
    return [result.model_copy(update=update) if _lacks_embedding(result) else result for result in results]


def _lacks_embedding(result: WriteResult) -> bool:
    return result.embedding is None and result.status in _TEXT_WRITTEN


def live_memory(memory_id: int) -> Memory:
    """Return the memory.

    Raises:
        NotFound: there is no such memory.
        Gone: it is deleted or in quarantine.
    """
    memory = find_memory(memory_id)
    if memory.deleted_at:
        raise Gone(f"memory #{memory_id} is deleted; restore it first", id=memory_id)
    aside = quarantine_marks([memory_id])
    if aside:
        raise Gone(
            f"memory #{memory_id} is {aside[memory_id]}; a person can undo that, or write a new memory",
            id=memory_id,
        )
    return memory


def refuse_taken_title(existing: Existing, state: MemoryState) -> None:
    """Refuse a topic that another memory of the scope has; without a topic, the title of one of the same kind.

    Raises:
        Conflict: it is taken; the data has the id.
    """
    if state.topic_key:
        _refuse_taken_topic(existing, state)
        return
    taken = ExistingMemories([state], existing.session_id).of_title(state)
    if taken and taken.id != existing.id:
        raise Conflict(
            f"{state.kind} {state.title!r} of scope {state.scope} exists as #{taken.id}; choose another title, or "
            "update that one",
            id=taken.id,
        )


def _refuse_taken_topic(existing: Existing, state: MemoryState) -> None:
    taken = ExistingMemories([state], existing.session_id).of_topic(state)
    if taken and taken.id != existing.id:
        raise Conflict(
            f"#{taken.id} has topic {state.topic_key!r} in scope {state.scope}; update that one, or delete it first",
            id=taken.id,
        )


def kept(existing: Existing, status: WriteStatus) -> WriteResult:
    """Return the result of a write that changed nothing."""
    state = existing.state
    return WriteResult(
        id=existing.id,
        version=existing.version,
        status=status,
        title=state.title,
        scope=state.scope,
        **_review_fields(existing.status),
    )


def written(
    memory_id: int,
    version: int,
    status: WriteStatus,
    state: MemoryState | Memory,
    draft: Draft[Any],
) -> WriteResult:
    """Return the result of a write, with its redactions."""
    return WriteResult(
        id=memory_id,
        version=version,
        status=status,
        title=state.title,
        scope=state.scope,
        redacted=list(draft.redactions),
    )


def with_deletion(result: WriteResult, at: datetime | None) -> WriteResult:
    """Add when the memory was deleted, if the result is of a deletion."""
    if result.status not in (WriteStatus.DELETED, WriteStatus.ERASED):
        return result
    can_restore = result.status is WriteStatus.DELETED
    return result.model_copy(update={"deleted_at": at, "permanent": not can_restore, "can_restore": can_restore})


def with_memory(result: WriteResult) -> WriteResult:
    """Add the type, tags and times that the memory has after the write; its store must be current."""
    memory = (
        Memory.objects.filter(id=result.id).values("tags", "created_at", "updated_at", memory_type=F("type")).first()
    )
    return result.model_copy(update=memory) if memory else result


def with_review_status(result: WriteResult, review: ReviewStatus | None) -> WriteResult:
    """Add the review status to a result."""
    return result.model_copy(update=_review_fields(review)) if review else result


def _review_fields(review: ReviewStatus) -> dict[str, Any]:
    return {
        "review": review.state,
        "review_reason": review.reason,
        "accepted_version": review.accepted_version,
    }


def result_of(event: RawEvent, redactions: Sequence[str] = ()) -> WriteResult:
    """Return the result of a repeated call with the same idempotency key."""
    memory = find_memory(int(event.stream_id.removeprefix("memory:")))
    result = WriteResult(
        id=memory.id,
        version=memory.version,
        status=_STATUS_OF_EVENT[event.event_type],
        title=memory.title,
        scope=memory.scope,
        redacted=list(redactions),
        **_review_fields(review_status_of(memory)),
    )
    return with_memory(with_deletion(with_embedding([result])[0], memory.deleted_at))
