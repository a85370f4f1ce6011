"""One item of the review queue: its text, its changes, and similar memories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib import admin, messages
from django.db.models import Q, QuerySet
from django.http import HttpRequest

from memories.admin import listing
from memories.admin.attributes import attribute_fields, outer_name, shown_attributes
from memories.admin.base import SectionAdmin, sentence
from memories.admin.comparing import Version, change, history_of, side_by_side, version_in
from memories.admin.rendering import render
from memories.diff import Effort, merge_texts
from memories.duplicates import Existing, near_memories
from memories.events import Verdict
from memories.models import Memory, ReviewState
from memories.review.schemas import ReviewVerdict
from memories.review.services import review_many
from memories.selectors.memories import find_memory
from memories.services.revise import live_memory
from memoryhub.core.admin import DefaultFilter, cells
from memoryhub.core.errors import HubError
from memoryhub.core.kinds import KINDS

AT_ONCE = 200


class MemoryReviewFilter(DefaultFilter):
    title = "review"
    parameter_name = "review"
    options = {
        "kept": "Not rejected",
        "accepted": "Accepted",
        "proposed": "Proposed",
        "rejected": "Rejected",
        "all": "All",
    }
    conditions = {"kept": ~Q(review=ReviewState.REJECTED), **{str(state): Q(review=state) for state in ReviewState}}


class ReviewActions(SectionAdmin):
    @admin.action(description="Accept", permissions=["change"])
    def accept_chosen(self, request: HttpRequest, queryset: QuerySet[Memory]) -> None:
        _review_chosen(request, queryset, Verdict.ACCEPTED)

    @admin.action(description="Reject", permissions=["change"])
    def reject_chosen(self, request: HttpRequest, queryset: QuerySet[Memory]) -> None:
        _review_chosen(request, queryset, Verdict.REJECTED)


CAN_UNDO = "verdicts_to_undo"


def _review_chosen(request: HttpRequest, queryset: QuerySet[Memory], verdict: Verdict) -> None:
    ids = list(queryset.values_list("id", flat=True)[: AT_ONCE + 1])
    if len(ids) > AT_ONCE:
        messages.error(request, f"Select at most {AT_ONCE} memories at a time. Nothing was changed.")
        return
    review_and_report(request, [ReviewVerdict(id=memory_id, verdict=verdict) for memory_id in ids])


def review_and_report(request: HttpRequest, commands: Sequence[ReviewVerdict]) -> None:
    """Give verdicts that can be undone together."""
    outcomes = review_many(commands=commands)
    for outcome in outcomes:
        if outcome.refused:
            messages.warning(request, sentence(HubError(outcome.refused)))
    reviewed = [outcome.id for outcome in outcomes if not outcome.refused]
    if reviewed:
        request.session[CAN_UNDO] = reviewed  # the list shows a button once
        messages.success(request, f"{cells.counted(len(reviewed), 'memory', 'memories')} {commands[0].verdict}.")


@dataclass(frozen=True, slots=True)
class QueuePlace:
    id: int
    number: int
    total: int
    before: int | None
    after: int | None

    @classmethod
    def of(cls, memory_id: int, pending: Sequence[int]) -> QueuePlace | None:
        """Return the place of an item in the queue, or None if it is not in it."""
        if memory_id not in pending:
            return None
        index = pending.index(memory_id)
        before = pending[index - 1] if index else None
        after = pending[index + 1] if index + 1 < len(pending) else None
        return cls(memory_id, index + 1, len(pending), before, after)

    @property
    def next(self) -> int | None:
        return self.after or self.before


def shown_item(memory_id: int) -> dict[str, Any]:
    memory = find_memory(memory_id)
    versions = history_of(memory)
    current = version_in(versions, memory.version, memory)
    history = {version["version"]: version for version in versions}
    return {
        "memory": memory,
        "rendered": render(memory.content, KINDS[memory.kind].rendering),
        "mark": listing.kind_and_type(memory),
        "own": _own(memory),
        "version": current,
        "source": cells.badge("source", current["source"]),
        "changed": _changed(memory, history),
        "similar": _similar(memory),
    }


def merging(memory_id: int, into: int) -> dict[str, Any]:
    """Return both texts and a draft of the merged one.

    Raises:
        NotFound: there is no memory ``into``.
        Gone: it is deleted.
    """
    memory, target = find_memory(memory_id), live_memory(into)
    same = target.content.strip() == memory.content.strip()
    draft = target.content if same else merge_texts("", target.content, memory.content)
    sides = side_by_side(target.content, memory.content)
    return {"target": target, "sides": sides, "draft": draft, "draft_rows": min(max(draft.count("\n") + 3, 6), 24)}


def _changed(memory: Memory, history: dict[int, Version]) -> dict[str, Any] | None:
    """Return the changes to the accepted version, else to the previous one; None for a first version."""
    base = memory.accepted_version or memory.version - 1
    if base not in history:
        return None
    return {
        "since": history[base],
        "is_accepted": bool(memory.accepted_version),
        **change(history[memory.version], history[base]),
    }


def _similar(memory: Memory) -> list[dict[str, Any]]:
    found = near_memories(memory.id, Existing.of(memory).state)
    memories = Memory.objects.in_bulk([near.id for near in found])
    effort = Effort()
    return [
        {
            "memory": memories[near.id],
            "percent": round(near.alike * 100),
            "sides": side_by_side(memories[near.id].content, memory.content, effort),
            "warnings": listing.warnings(memories[near.id]),
        }
        for near in found
        if near.id in memories
    ]


def _own(memory: Memory) -> list[tuple[str, str, bool]]:
    """Return the attributes of the item's kind in the order of its form: label, text, whether it is code."""
    values = shown_attributes(memory.kind, memory.attributes)
    fields = attribute_fields(memory.kind)
    shapes = KINDS[memory.kind].shapes
    return [
        (
            fields[name].label,
            "\n\n".join(value) if isinstance(value, list) else str(value),
            shapes[outer_name(name)].in_code,
        )
        for name, value in values.items()
        if value not in (None, "", [])
    ]
