from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Exists, OuterRef

from memories import scopes
from memories.diff import Effort, marked_diff
from memories.events import MEMORY_REVIEWED, MemoryReviewed, Verdict
from memories.models import Memory, MemoryQuerySet, MemoryVersion, ReviewState
from memories.present import memory_line
from memories.review.schemas import ReviewItem, ReviewList
from memories.schemas import MemoryView
from memories.selectors.memories import views
from memories.selectors.versions import plain_versions_of
from memoryhub.core.models import RawEvent
from memoryhub.core.paging import decode_cursor, encode_cursor, page
from memoryhub.core.schemas import Listing
from memoryhub.core.search import retrieval

# Number of latest verdicts searched for one that can be undone
_RECENT_VERDICTS = 50


@dataclass(frozen=True, slots=True)
class GivenVerdict:
    """A verdict and who gave it."""

    position: int
    actor: str
    payload: MemoryReviewed


def count_waiting() -> int:
    """Return the number of proposed memories in the current store."""
    found: int = Memory.objects.in_review(ReviewState.PROPOSED).count()
    return found


def queue(state: ReviewState = ReviewState.PROPOSED) -> list[int]:
    """Return the ids of memories in a review state, oldest first."""
    return list(Memory.objects.in_review(state).order_by("updated_at", "id").values_list("id", flat=True))


def list_reviews(*, command: ReviewList) -> Listing:
    """Return a page of memories in a review state, oldest first; the cursor neither skips nor repeats."""
    with retrieval("list", command), scopes.reading(command.scope):
        matching = _matching(command)
        found = list(_after(matching, command.cursor).order_by("updated_at", "id")[: command.limit + 1])
        places = {memory.id: encode_cursor(memory.updated_at.isoformat(), memory.id) for memory in found}
        shown = found[: command.limit]
        return page(
            [{"id": memory.id, "title": memory.title} for memory in shown] if command.compact else items(shown),
            total=matching.count(),
            more=len(found) > command.limit,
            cursor_of=lambda item: places[item["id"]],
            line=memory_line,
            max_tokens=command.max_tokens,
        )


def _matching(command: ReviewList) -> MemoryQuerySet:
    wanted = {"kind": command.kind, "type": command.type, "session_id": command.session_id}
    found: MemoryQuerySet = Memory.objects.in_review(command.review)
    found = found.filter(**{name: value for name, value in wanted.items() if value})
    written = {name: getattr(command, name) for name in ("actor", "source") if getattr(command, name)}
    if written:
        present = MemoryVersion.objects.filter(memory_id=OuterRef("id"), version=OuterRef("version"))
        found = found.filter(Exists(present.filter(**written)))
    return found


def _after(matching: MemoryQuerySet, cursor: str | None) -> MemoryQuerySet:
    parts = decode_cursor(cursor, (str, int))
    if parts is None:
        return matching
    moment, memory_id = parts
    return matching.filter(updated_at__gt=moment) | matching.filter(updated_at=moment, id__gt=memory_id)


def items(memories: Sequence[Memory]) -> list[dict[str, Any]]:
    """Return proposed memories as JSON data, each with its evidence and what it changes."""
    histories = plain_versions_of([memory.id for memory in memories])
    effort = Effort()
    return [_item(view, histories[view["id"]], effort) for view in views(memories)]


def _item(view: dict[str, Any], history: list[dict[str, Any]], effort: Effort) -> dict[str, Any]:
    numbered = {version["version"]: version for version in history}
    present, holding = numbered[view["version"]], numbered.get(view["accepted_version"])
    diff = marked_diff(holding["content"] or "", present["content"] or "", effort) if holding else ""
    return ReviewItem(
        **{name: view[name] for name in MemoryView.model_fields},
        event=present["event"],
        actor=present["actor"],
        door=present["source"],
        proposed_in=present["session_id"],
        proposed_at=present["created_at"],
        change_reason=present["reason"],
        diff=diff,
    ).model_dump(mode="json")


def last_verdict(memory_id: int) -> GivenVerdict | None:
    """Return the last verdict on a memory, or None."""
    found = RawEvent.objects.filter(stream_id=f"memory:{memory_id}", event_type=MEMORY_REVIEWED.name)
    return next(map(_given, found.exclude(payload_json=None).order_by("-stream_seq")[:1]), None)


def last_verdict_of(actor: str) -> GivenVerdict | None:
    """Return the last verdict of ``actor`` that is still in effect, or None."""
    found = RawEvent.objects.filter(event_type=MEMORY_REVIEWED.name).order_by("-position")[:_RECENT_VERDICTS]
    decided: set[int] = set()
    for given in (_given(event) for event in found if event.payload_json):
        memory_id = given.payload.memory_id
        if memory_id not in decided and given.payload.verdict is not Verdict.WITHDRAWN and given.actor == actor:
            return given
        decided.add(memory_id)
    return None


def _given(event: RawEvent) -> GivenVerdict:
    payload = MemoryReviewed.model_validate(json.loads(event.payload_json or "{}"))
    return GivenVerdict(event.position, event.actor, payload)
