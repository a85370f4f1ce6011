"""The base of the lists of memories: columns, search, bulk actions, and the form of a new memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from django.contrib import admin, messages
from django.db.models import Count, QuerySet
from django.db.models.functions import Substr
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from memories import services
from memories.admin import listing
from memories.admin.base import SectionAdmin, sentence, show_error, show_result
from memories.admin.forms import NewMemoryForm
from memories.admin.listing import MemoryChangeList, search
from memories.events import Verdict
from memories.models import Memory, MemoryKind, MemoryTag
from memories.review.schemas import ReviewVerdict
from memories.review.services import review_many
from memories.schemas import MemoryTouch
from memoryhub.core.admin import HubChangeList, cells
from memoryhub.core.admin.schema_form import posted
from memoryhub.core.errors import ConflictError, Gone, HubError
from memoryhub.core.kinds import DEFAULT_KIND, KINDS
from memoryhub.core.permissions import Act, may, require
from memoryhub.core.text import one_line

FORM = "admin/memories/memory/form.html"
AT_ONCE = 200
CAN_UNDO = "verdicts_to_undo"
_TYPES_OFFERED, _TAGS_OFFERED = 20, 200
# Characters of a text in a list
_SHOWN_CHARS = 200


class MemoryListAdmin(SectionAdmin):
    """Memories of one kind or of all, last changed first."""

    kind: MemoryKind | None = None  # None: all kinds
    list_display_links = ("number",)
    export_fields = (
        "id",
        "title",
        "kind",
        "type",
        "content",
        "tags",
        "author",
        "scope",
        "review",
        "session_id",
        "version",
        "seen_count",
        "created_at",
        "updated_at",
    )
    search_fields = ("title",)
    search_help_text = "Search in your own words; best matches first"
    quarantine_field = "pk"
    ordering: ClassVar[tuple[str, ...]] = ("-updated_at",)
    actions = ("accept_chosen", "reject_chosen", "delete_chosen", "restore_chosen")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return may(request.user, Act.WRITE)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return may(request.user, Act.WRITE)

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[HubChangeList]:
        return MemoryChangeList

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        memories: QuerySet[Any] = super().get_queryset(request)
        named = (request.resolver_match and request.resolver_match.url_name) or ""
        if not named.endswith("_changelist"):
            return memories
        excerpts: QuerySet[Any] = memories.defer("content", "resource_links").annotate(
            beginning=Substr("content", 1, _SHOWN_CHARS)
        )
        return excerpts

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        if search_term.strip():
            queryset = search(request, queryset, search_term, self.kind)
        return queryset, False

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        context = {"can_undo": (), **(extra_context or {})}
        if request.method == "GET":
            context["can_undo"] = request.session.pop(CAN_UNDO, ())
        return super().changelist_view(request, context)

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        require(request.user, Act.WRITE)
        kind = self.kind or MemoryKind(DEFAULT_KIND)
        form = NewMemoryForm(kind, posted(request))
        command = form.command()
        if command:
            try:
                return show_result(request, services.write_memory(command=command))
            except HubError as error:
                show_error(form, error)
        kinds = []
        for other in MemoryKind:
            url = reverse(f"admin:memories_{other.value}_add")
            kinds.append({"label": other.label, "url": url, "current": other is kind})
        context: dict[str, Any] = {"title": self.add_label, "form": form, "adding": True, "kinds": kinds}
        if self.kind:
            context |= {"list_url": self.url("changelist"), "list_label": KINDS[kind].plural}
        return self.page(request, FORM, None, **context, **offered(kind))

    @admin.action(description="Accept", permissions=["change"])
    def accept_chosen(self, request: HttpRequest, queryset: QuerySet[Memory]) -> None:
        commands = [ReviewVerdict(id=memory_id, verdict=Verdict.ACCEPTED) for memory_id in _chosen(request, queryset)]
        review_and_report(request, commands)

    @admin.action(description="Reject", permissions=["change"])
    def reject_chosen(self, request: HttpRequest, queryset: QuerySet[Memory]) -> None:
        commands = [ReviewVerdict(id=memory_id, verdict=Verdict.REJECTED) for memory_id in _chosen(request, queryset)]
        review_and_report(request, commands)

    @admin.action(description="Delete", permissions=["change"])
    def delete_chosen(self, request: HttpRequest, queryset: QuerySet[Memory]) -> None:
        self._touch_chosen(request, queryset, services.delete_memory, "deleted; the filter “State: Deleted” shows them")

    @admin.action(description="Restore", permissions=["change"])
    def restore_chosen(self, request: HttpRequest, queryset: QuerySet[Memory]) -> None:
        self._touch_chosen(request, queryset, services.restore_memory, "restored")

    def _touch_chosen(self, request: HttpRequest, queryset: QuerySet[Memory], service: Any, outcome: str) -> None:
        count = 0
        for memory_id in _chosen(request, queryset):
            try:
                service(command=MemoryTouch(id=memory_id))
                count += 1
            except (ConflictError, Gone) as error:
                messages.warning(request, sentence(error))
        if count:
            messages.success(request, f"{cells.counted(count, 'memory', 'memories')} {outcome}.")

    @admin.display(description="#", ordering="id")
    def number(self, memory: Memory) -> SafeString:
        return cells.code(f"#{memory.id}")

    @admin.display(description="memory", ordering="title")
    def about(self, memory: Memory) -> SafeString:
        """Return the title, warnings, the beginning of the text or a search result's snippet, and the tags."""
        title = cells.link(reverse("admin:memories_memory_change", args=[memory.id]), memory.title, "title")
        snippet = getattr(memory, "snippet", "") or one_line(getattr(memory, "beginning", ""), _SHOWN_CHARS)
        under = format_html('<span class="snippet">{}</span>', snippet) if snippet else ""
        tags = cells.tag_links(memory.tags, "") if memory.tags else ""
        has_column = self.kind is not None and "valid_until" in KINDS[self.kind].columns
        # Every memory has a version 1 and was seen once
        counts = [f"v{memory.version}"] if memory.version > 1 else []
        counts += [f"seen {memory.seen_count:,}×"] if memory.seen_count > 1 else []
        repeats = format_html('<span class="quiet repeats">{}</span>', " · ".join(counts)) if counts else ""
        warnings = listing.warnings(memory, with_expiry=not has_column)
        marks = format_html("{} {} {}", warnings, getattr(memory, "mark_badges", ""), repeats)
        return format_html("{} {}{}{}", title, marks, under, tags)

    @admin.display(description="kind", ordering="kind")
    def kind_badge(self, memory: Memory) -> SafeString:
        return listing.kind_and_type(memory)

    @admin.display(description="updated", ordering="updated_at")
    def updated(self, memory: Memory) -> SafeString:
        return cells.moment(memory.updated_at)


def offered(kind: MemoryKind) -> dict[str, Any]:
    known_types: list[str] = []
    if not KINDS[kind].types:
        types = Memory.objects.live().filter(kind=kind).values_list("type").annotate(count=Count("id"))
        known_types = [name for name, _ in types.order_by("-count", "type")[:_TYPES_OFFERED]]
    tags = MemoryTag.objects.values_list("tag").annotate(memories=Count("memory_id")).order_by("-memories", "tag")
    return {"known_types": known_types, "known_tags": [tag for tag, _ in tags[:_TAGS_OFFERED]]}


# The ids of the selected memories; none and a message if there are too many
def _chosen(request: HttpRequest, queryset: QuerySet[Memory]) -> list[int]:
    ids = list(queryset.values_list("id", flat=True)[: AT_ONCE + 1])
    if len(ids) > AT_ONCE:
        messages.error(request, f"Select at most {AT_ONCE} memories at a time. Nothing was changed.")
        return []
    return ids


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
