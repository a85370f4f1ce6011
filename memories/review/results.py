"""What a verdict answers."""

from __future__ import annotations

import json
from collections.abc import Sequence

from memories.events import MemoryReviewed
from memories.models import Memory, MemoryScope, ReviewState
from memories.review.schemas import ReviewResult
from memories.selectors.memories import find_memory
from memoryhub.core.models import RawEvent


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
