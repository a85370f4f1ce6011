"""The review queue: one proposed memory at a time, with its verdicts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import URLPattern, path
from django.views.decorators.http import require_POST

from memories.admin import listing
from memories.admin.base import SectionAdmin, sentence, warn_of_redactions
from memories.admin.comparing import Version, change, history_of, side_by_side, version_in
from memories.admin.forms import EditForm, attribute_fields
from memories.admin.lists import AT_ONCE, offered
from memories.admin.rendering import render
from memories.diff import Effort, merge_texts
from memories.duplicates import Existing, near_memories
from memories.events import Verdict
from memories.models import Memory, MemoryKind, ReviewState
from memories.references import end_id
from memories.review import services
from memories.review.schemas import ReviewMerge, ReviewResult, ReviewTouch, ReviewVerdict
from memories.review.selectors import last_verdict_of, queue
from memories.selectors.memories import find_memory
from memories.services.revise import live_memory
from memoryhub.core.admin import cells, needs, next_page
from memoryhub.core.admin.schema_form import WITHIN, initial_values, posted
from memoryhub.core.errors import HubError, Invalid, NotFound, PreconditionFailed
from memoryhub.core.kinds import KINDS
from memoryhub.core.permissions import Act
from memoryhub.core.validation import command_from

_PAGE = "admin/memories/review/page.html"
_MESSAGES = {
    Verdict.ACCEPTED: "Accepted #{id} {title}.",
    Verdict.REJECTED: "Rejected #{id} {title}.",
    Verdict.WITHDRAWN: "Undid the verdict on #{id} {title}. It is proposed again.",
}
_REVISION_REJECTED = "Rejected the revision of #{id}. Version {version} restores the accepted text."
_MERGED = "Merged #{id} into #{merged_into}."


class ReviewViews(SectionAdmin):
    def review_urls(self) -> list[URLPattern]:
        def page(address: str, view: Callable[..., HttpResponse], name: str) -> URLPattern:
            return path(f"review/{address}", self.admin_site.admin_view(view), name=f"memories_review_{name}")

        def verdict(address: str, view: Callable[..., HttpResponse], name: str) -> URLPattern:
            return page(f"<int:memory_id>/{address}/", needs(Act.REVIEW, view), name)

        return [
            page("", self.queue_view, "changelist"),
            page("undo/", require_POST(needs(Act.REVIEW, self.undo_view)), "undo"),
            page("undo/chosen/", require_POST(needs(Act.REVIEW, self.undo_chosen_view)), "undo_chosen"),
            page("<int:memory_id>/", self.item_view, "item"),
            verdict("accept", require_POST(self.accept_view), "accept"),
            verdict("reject", require_POST(self.reject_view), "reject"),
            verdict("edit", self.accept_edited_view, "edit"),
            verdict("merge", self.merge_view, "merge"),
        ]

    def queue_view(self, request: HttpRequest) -> HttpResponse:
        pending = queue()
        if pending:
            return self._go(pending[0])
        return self._show(request)

    def item_view(self, request: HttpRequest, memory_id: int) -> HttpResponse:
        pending = queue()
        if memory_id not in pending:
            messages.info(request, f"#{memory_id} is not in review.")
            return redirect("admin:memories_review_changelist")
        try:
            return self._show(request, QueuePlace.of(memory_id, pending))
        except NotFound as error:  # erased meanwhile
            messages.info(request, sentence(error))
            return redirect("admin:inbox")

    def accept_view(self, request: HttpRequest, memory_id: int) -> HttpResponse:
        return self._give_verdict(request, memory_id, Verdict.ACCEPTED)

    def reject_view(self, request: HttpRequest, memory_id: int) -> HttpResponse:
        return self._give_verdict(request, memory_id, Verdict.REJECTED)

    def accept_edited_view(self, request: HttpRequest, memory_id: int) -> HttpResponse:
        memory = find_memory(memory_id)
        place = QueuePlace.of(memory_id, queue())
        if place is None:
            return self.item_view(request, memory_id)
        kind = MemoryKind(memory.kind)
        form = EditForm(memory, posted(request))
        command = form.command()
        if command:
            try:
                result = services.accept_edited(command=command)
                return self._redirect_after(request, result, place.next)
            except HubError as error:
                form.show(error)
        return self._show(request, place, form=form, **offered(kind))

    def merge_view(self, request: HttpRequest, memory_id: int) -> HttpResponse:
        place = QueuePlace.of(memory_id, queue())
        if place is None:
            return self.item_view(request, memory_id)
        data = request.POST if request.method == "POST" else request.GET
        # A typed number overrides the selection
        into = data.get("other", "").strip() or data.get("into", "").strip()
        try:
            if not into:
                raise Invalid("select the memory to merge into, or type its number")
            target = end_id("into", into)
            if request.method != "POST":
                return self._show(request, place, **merging(memory_id, target))
            versions = {name: data.get(name) or None for name in ("base_version", "into_version")}
            content = data.get("content", "").replace("\r\n", "\n")
            fields = {"id": memory_id, "into": target, "content": content, **versions}
            result = services.merge_into(command=command_from(ReviewMerge, fields))
            return self._redirect_after(request, result, place.next)
        except HubError as error:
            messages.error(request, sentence(error))
            return self._go(memory_id)

    def undo_view(self, request: HttpRequest) -> HttpResponse:
        verdict = last_verdict_of(request.user.get_username())
        if verdict is None:
            messages.info(request, "You have no verdict to undo.")
            return redirect("admin:memories_review_changelist")
        try:
            result = services.withdraw_verdict(command=ReviewTouch(id=verdict.payload.memory_id))
        except HubError as error:
            messages.error(request, sentence(error))
            return redirect("admin:memories_review_changelist")
        return self._redirect_after(request, result, result.id)

    def undo_chosen_view(self, request: HttpRequest) -> HttpResponse:
        """Undo the verdicts that were given together in a list."""
        parts = request.POST.get("ids", "").split()
        ids = [int(part) for part in parts if part.isdecimal() and len(part) < 16 and int(part)][:AT_ONCE]
        undone = 0
        for memory_id in ids:
            try:
                services.withdraw_verdict(command=ReviewTouch(id=memory_id), by=request.user.get_username())
                undone += 1
            except HubError as error:
                messages.warning(request, sentence(error))
        if undone:
            messages.success(request, f"{cells.counted(undone, 'verdict')} undone.")
        return redirect(next_page(request) or "admin:memories_memory_changelist")

    def _give_verdict(self, request: HttpRequest, memory_id: int, verdict: Verdict) -> HttpResponse:
        place = QueuePlace.of(memory_id, queue())
        following = place.next if place else None
        try:
            fields = {
                "base_version": request.POST.get("base_version") or None,
                "reason": request.POST.get("reason", "").strip(),
            }
            command = command_from(ReviewVerdict, {"id": memory_id, "verdict": verdict, **fields})
            return self._redirect_after(request, services.review_memory(command=command), following)
        except HubError as error:
            messages.error(request, sentence(error))
            return self._go(memory_id if isinstance(error, PreconditionFailed) else following)

    def _redirect_after(self, request: HttpRequest, result: ReviewResult, following: int | None) -> HttpResponse:
        message = _MESSAGES[result.verdict]
        if result.merged_into:
            message = _MERGED
        elif result.verdict is Verdict.REJECTED and result.review is ReviewState.ACCEPTED:
            message = _REVISION_REJECTED
        messages.success(request, message.format(**{**result.model_dump(), "title": f"“{result.title}”"}))
        warn_of_redactions(request, result.redacted)
        if request.POST.get("back") == "memory":
            return redirect("admin:memories_memory_change", result.id)
        following_page = next_page(request)
        if following_page:
            return redirect(following_page)
        return self._go(following)

    def _go(self, memory_id: int | None) -> HttpResponse:
        if memory_id is None:
            return redirect("admin:memories_review_changelist")
        return redirect("admin:memories_review_item", memory_id)

    def _show(self, request: HttpRequest, place: QueuePlace | None = None, **more: Any) -> HttpResponse:
        context: dict[str, Any] = {"title": "Inbox", "at": place}
        memory_id = 0
        if place:
            memory_id = place.id
            memory = find_memory(memory_id)
            history = history_of(memory)
            current = version_in(history, memory.version, memory)
            context |= {
                "memory": memory,
                "rendered": render(memory.content, KINDS[memory.kind].rendering),
                "mark": listing.kind_and_type(memory),
                "own": _attribute_lines(memory),
                "version": current,
                "source": cells.badge("source", current["source"]),
                "changed": _changed(memory, {version["version"]: version for version in history}),
                "similar": _similar(memory),
            }
        request.inbox_key = f"proposal-{memory_id}"  # type: ignore[attr-defined]
        return self.page(request, _PAGE, None, **{**context, **more})


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
        around = [None, *pending, None]
        number = around.index(memory_id)
        return cls(memory_id, number, len(pending), before=around[number - 1], after=around[number + 1])

    @property
    def next(self) -> int | None:
        return self.after or self.before


def merging(memory_id: int, into: int) -> dict[str, Any]:
    """Return both texts and a draft of the merged one.

    Raises:
        NotFound: there is no memory ``into``.
        Gone: it is deleted.
    """
    memory = find_memory(memory_id)
    target = live_memory(into)
    draft = target.content
    if target.content.strip() != memory.content.strip():
        draft = merge_texts("", target.content, memory.content)
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
    shares = {near.id: near.alike for near in near_memories(memory.id, Existing.of(memory).state)}
    memories = Memory.objects.in_bulk(list(shares))
    effort = Effort()
    similar = []
    for near_id, share in shares.items():
        if near_id in memories:
            similar.append(
                {
                    "memory": memories[near_id],
                    "percent": round(share * 100),
                    "sides": side_by_side(memories[near_id].content, memory.content, effort),
                    "warnings": listing.warnings(memories[near_id]),
                }
            )
    return similar


def _attribute_lines(memory: Memory) -> list[tuple[str, str, bool]]:
    """Return the attributes of the item's kind in the order of its form: label, text, whether it is code."""
    fields = attribute_fields(memory.kind)
    values = initial_values(fields, memory.attributes)
    shapes = KINDS[memory.kind].shapes
    lines = []
    for name, value in values.items():
        if value not in (None, "", []):
            text = "\n\n".join(value) if isinstance(value, list) else str(value)
            attribute = name.partition(WITHIN)[0]  # ``examples`` for ``examples__good``
            lines.append((fields[name].label, text, shapes[attribute].in_code))
    return lines
