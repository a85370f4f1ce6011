from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db.models import Exists, OuterRef

from memories import scopes
from memories.diff import Effort, marked_diff
from memories.events import MEMORY_REVIEWED, MemoryReviewed, Verdict
from memories.models import Memory, MemoryQuerySet, MemoryVersion, ReviewState
from memories.review.schemas import ReviewItem, ReviewList
from memories.schemas import MemoryView
from memories.selectors.memories import page_by_change, views
from memories.selectors.versions import plain_versions_of
from memoryhub.core import log
from memoryhub.core.events.projection import Event
from memoryhub.core.schemas import Listing
from memoryhub.core.search import retrieval

# Number of latest verdicts searched for one that can be undone
_RECENT_VERDICTS = 50


def count_waiting() -> int:
    """Return the number of proposed memories in the current store."""
    return int(Memory.objects.in_review(ReviewState.PROPOSED).count())


def queue(state: ReviewState = ReviewState.PROPOSED) -> list[int]:
    """Return the ids of memories in a review state, oldest first."""
    return list(Memory.objects.in_review(state).order_by("updated_at", "id").values_list("id", flat=True))


def list_reviews(*, command: ReviewList) -> Listing:
    """Return a page of memories in a review state, oldest first; the cursor neither skips nor repeats."""
    with retrieval("list", command), scopes.reading(command.scope):
        return page_by_change(_filtered(command), command, items, newest_first=False)


def _filtered(command: ReviewList) -> MemoryQuerySet:
    memories: MemoryQuerySet = Memory.objects.in_review(command.review)
    for field in ("kind", "type", "session_id"):
        if value := getattr(command, field):
            memories = memories.filter(**{field: value})
    versions = MemoryVersion.objects.filter(memory_id=OuterRef("id"), version=OuterRef("version"))
    for field in ("actor", "source"):
        if value := getattr(command, field):
            memories = memories.filter(Exists(versions.filter(**{field: value})))
    return memories


def items(memories: Sequence[Memory]) -> list[dict[str, Any]]:
    """Return proposed memories as JSON data, each with its evidence and what it changes."""
    histories = plain_versions_of([memory.id for memory in memories])
    effort = Effort()
    proposed = []
    for view in views(memories):
        numbered = {version["version"]: version for version in histories[view["id"]]}
        present = numbered[view["version"]]
        accepted = numbered.get(view["accepted_version"])
        item = ReviewItem(
            **{name: view[name] for name in MemoryView.model_fields},
            event=present["event"],
            actor=present["actor"],
            door=present["source"],
            proposed_in=present["session_id"],
            proposed_at=present["created_at"],
            change_reason=present["reason"],
            diff=marked_diff(accepted["content"] or "", present["content"] or "", effort) if accepted else "",
        )
        proposed.append(item.model_dump(mode="json"))
    return proposed


def last_verdict(memory_id: int) -> Event[MemoryReviewed] | None:
    """Return the last verdict on a memory, or None."""
    stored = log.events().of_stream(f"memory:{memory_id}").of_type(MEMORY_REVIEWED).readable().last()
    return log.event_of(stored) if stored else None


def last_verdict_of(actor: str) -> Event[MemoryReviewed] | None:
    """Return the last verdict of ``actor`` that is still in effect, or None."""
    decided: set[int] = set()
    for stored in log.events().of_type(MEMORY_REVIEWED).order_by("-position")[:_RECENT_VERDICTS]:
        if not stored.payload_json:
            continue
        verdict: Event[MemoryReviewed] = log.event_of(stored)
        memory_id = verdict.payload.memory_id
        is_withdrawn = verdict.payload.verdict is Verdict.WITHDRAWN
        if memory_id not in decided and not is_withdrawn and verdict.actor == actor:
            return verdict
        decided.add(memory_id)
    return None
