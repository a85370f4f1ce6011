"""What services answer, and how they find what they change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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


def with_embedding(results: Sequence[WriteResult]) -> list[WriteResult]:
    """Return answers that say what becomes of the vectors of what they wrote, unless they say so already."""
    if not any(map(_lacks_embedding, results)):
        return list(results)
    told = {"embedding": renewal()}
    return [each.model_copy(update=told) if _lacks_embedding(each) else each for each in results]


def _lacks_embedding(result: WriteResult) -> bool:
    return result.embedding is None and result.status in _TEXT_WRITTEN


def live_memory(memory_id: int) -> Memory:
    """Return the memory.

    Raises:
        NotFound: there is none of that id.
        Gone: it is deleted, or in quarantine.
    """
    memory = find_memory(memory_id)
    if memory.deleted_at:
        raise Gone(f"memory #{memory_id} is deleted; restore it first", id=memory_id)
    aside = quarantine_marks([memory_id])
    if aside:
        raise Gone(
            f"memory #{memory_id} is {aside[memory_id]}; a person lets it out by undoing that, or write it anew",
            id=memory_id,
        )
    return memory


def refuse_taken_title(existing: Existing, state: MemoryState) -> None:
    """Refuse the topic of another memory of the same scope; without a topic, the title of one of the same kind too.

    Raises:
        Conflict: it is taken; the data names the id.
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
    """Return the answer to a write that left the memory's state as it was."""
    state = existing.state
    return WriteResult(
        id=existing.id,
        version=existing.version,
        status=status,
        title=state.title,
        scope=state.scope,
        **_review_fields(existing.standing),
    )


def written(
    memory_id: int,
    version: int,
    status: WriteStatus,
    state: MemoryState | Memory,
    draft: Draft[Any],
) -> WriteResult:
    """Return the answer to a write, with what was redacted of it."""
    return WriteResult(
        id=memory_id,
        version=version,
        status=status,
        title=state.title,
        scope=state.scope,
        redacted=list(draft.redactions),
    )


def with_review_status(result: WriteResult, standing: ReviewStatus | None) -> WriteResult:
    """Return an answer that says how the memory stands."""
    return result.model_copy(update=_review_fields(standing)) if standing else result


def _review_fields(standing: ReviewStatus) -> dict[str, Any]:
    return {
        "review": standing.state,
        "review_reason": standing.reason,
        "accepted_version": standing.accepted_version,
    }


def result_of(event: RawEvent, redactions: Sequence[str] = ()) -> WriteResult:
    """Return the first answer to a call that came again with its idempotency key."""
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
    return with_embedding([result])[0]
