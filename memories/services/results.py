from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.db.models import F

from memories.duplicates import Existing, ExistingMemories, review_status_of
from memories.embeddings.meaning import renewal
from memories.events import (
    MEMORY_DELETED,
    MEMORY_RESTORED,
    MEMORY_REVISED,
    MEMORY_SEEN,
    MEMORY_WRITTEN,
    MemoryState,
    ReviewStatus,
)
from memories.models import Memory
from memories.schemas import WriteResult, WriteStatus
from memories.selectors.memories import find_memory
from memoryhub.config.project_settings import ProjectSettings
from memoryhub.core.errors import Conflict, Gone
from memoryhub.core.log import Draft
from memoryhub.core.log.quarantine import quarantine_marks
from memoryhub.core.models import RawEvent

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
