"""Whether a person stands behind a memory."""

from __future__ import annotations

from typing import Any

from memories.events import MEMORY_REVIEWED, MemoryReviewed, Standing
from memories.models import Memory
from memoryhub.core import rows
from memoryhub.core.projection import Event, projects

ACCEPTED = Standing()
"""How every memory stands where nobody asks for more."""


def standing_columns(standing: Standing | None) -> dict[str, Any]:
    """Return how a memory stands as its read model has it; None is accepted."""
    stands = standing or ACCEPTED
    return {
        "review": stands.state,
        "review_reason": stands.reason,
        "accepted_version": stands.accepted_version,
    }


@projects(MEMORY_REVIEWED)
def give_verdict(event: Event[MemoryReviewed]) -> None:
    """Let the memory stand as the verdict says."""
    rows.update(Memory, event.payload.memory_id, **standing_columns(event.payload.after))
