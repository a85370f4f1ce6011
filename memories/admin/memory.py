"""The admin of memories: the list, one memory with its evidence, its versions, and bulk actions."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, path
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.views.decorators.http import require_POST

from memories import services
from memories.admin.diff import word_diff
from memories.admin.editing import EditingViews, sentence
from memories.admin.listing import (
    DeletedFilter,
    MemoryChangeList,
    SessionFilter,
    TagFilter,
    TypeFilter,
    UpdatedFilter,
    search,
)
from memories.admin.rendering import render
from memories.models import Memory, MemoryVersion
from memories.schemas import MemoryTouch
from memories.selectors import versions_of
from memoryhub.core.admin import HubChangeList, cells
from memoryhub.core.errors import Conflict, Gone
from memoryhub.core.models import RawEvent

_VERSIONS_SHOWN = 6
_DIFFS = 10
_AT_ONCE = 200


@admin.register(Memory)
class MemoryAdmin(EditingViews):
    """Memories, last changed first."""

    list_display = ("number", "about", "kind_badge", "revision", "author", "updated", "seen")
    list_display_links = ("number",)
    list_filter = (TypeFilter, DeletedFilter, UpdatedFilter, TagFilter, SessionFilter)
    search_fields = ("title",)
    search_help_text = "Ask in your own words; the best answers come first"
    ordering = ("-updated_at",)
    actions = ("delete_chosen", "restore_chosen")
    stream_kind = "memory"
    detail_template = "admin/memories/memory/detail.html"
    empty_title = "No memory here"
    empty_text = "Write the first one, or let an agent write it over MCP; “memory-hub import markdown” brings notes in."

    def has_add_permission(self, request: HttpRequest) -> bool:
        """A person may write memories."""
        return bool(request.user.is_staff)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """A person may revise memories."""
        return bool(request.user.is_staff)

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[HubChangeList]:
        """Return the list that shows why something was found."""
        return MemoryChangeList

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Leave the texts where they are in lists."""
        memories = super().get_queryset(request)
        named = request.resolver_match and request.resolver_match.url_name
        return memories.defer("content", "resource_links") if named == "memories_memory_changelist" else memories

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Search by relevance, as every door does."""
        return (search(request, queryset, search_term) if search_term.strip() else queryset), False

    def get_urls(self) -> list[URLPattern]:
        """Add editing, versions and restoring."""

        def page(address: str, view: Callable[..., HttpResponse], name: str) -> URLPattern:
            wrapped = self.admin_site.admin_view(view)
            return path(f"<path:object_id>/{address}/", wrapped, name=f"memories_memory_{name}")

        own = [
            page("edit", self.edit_view, "edit"),
            page("versions", self.versions_view, "versions"),
            page("restore", require_POST(self.restore_view), "restore"),
        ]
        return [*own, *super().get_urls()]

    def detail(self, request: HttpRequest, found: Memory) -> dict[str, Any]:
        """Return the rendered text and the evidence."""
        versions = MemoryVersion.objects.filter(memory_id=found.id).order_by("-version")
        return {
            "title": found.title,
            "rendered": render(found.content),
            "event": RawEvent.objects.filter(position=found.id).defer("payload_json").first(),
            "versions": versions[:_VERSIONS_SHOWN],
            "tags": cells.tag_links(found.tags, self.url("changelist")),
        }

    def versions_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Show what changed from version to version, newest first, ten to a page."""
        memory: Memory = self.find(request, object_id)
        versions = versions_of([memory.id])[memory.id]
        before = request.GET.get("before", "")
        if before.isdecimal():
            versions = [each for each in versions if each["version"] < int(before)]
        shown = versions[: _DIFFS + 1]
        first = [{**shown[-1], "first": True}] if shown and shown[-1]["version"] == 1 else []
        changes = [_compared(newer, older) for newer, older in pairwise(shown)] + first
        older = changes[-1]["version"] if changes and not first else None
        context = {"subtitle": "Versions", "changes": changes, "older": older}
        return self.page(request, "admin/memories/memory/versions.html", memory, **context)

    @admin.action(description="Delete")
    def delete_chosen(self, request: HttpRequest, queryset: QuerySet[Memory]) -> None:
        """Delete the chosen memories softly."""
        self._touch_chosen(request, queryset, services.delete_memory, "deleted; “State: Deleted” shows them")

    @admin.action(description="Restore")
    def restore_chosen(self, request: HttpRequest, queryset: QuerySet[Memory]) -> None:
        """Bring the chosen memories back."""
        self._touch_chosen(request, queryset, services.restore_memory, "restored")

    def _touch_chosen(self, request: HttpRequest, queryset: QuerySet[Memory], service: Any, done: str) -> None:
        ids = list(queryset.values_list("id", flat=True)[: _AT_ONCE + 1])
        if len(ids) > _AT_ONCE:
            messages.error(request, f"Choose at most {_AT_ONCE} memories at a time; nothing was changed.")
            return
        count = 0
        for memory_id in ids:
            try:
                service(command=MemoryTouch(id=memory_id))
                count += 1
            except (Conflict, Gone) as error:
                messages.warning(request, sentence(error))
        if count:
            messages.success(request, f"{cells.counted(count, 'memory', 'memories')} {done}.")

    @admin.display(description="#", ordering="id")
    def number(self, memory: Memory) -> SafeString:
        """Return the id."""
        return cells.code(f"#{memory.id}")

    @admin.display(description="memory", ordering="title")
    def about(self, memory: Memory) -> SafeString:
        """Return the title, the deletion mark, the words that it was found by, and the tags."""
        title = cells.link(self.url("change", memory.id), memory.title, "title")
        mark = cells.badge("deleted", "Deleted") if memory.deleted_at else ""
        snippet = getattr(memory, "snippet", "")
        under = format_html('<span class="snippet">{}</span>', snippet) if snippet else ""
        return format_html("{} {}{}{}", title, mark, under, cells.tag_links(memory.tags, "") if memory.tags else "")

    @admin.display(description="type", ordering="type")
    def kind_badge(self, memory: Memory) -> SafeString:
        """Return the type."""
        return cells.badge(memory.type, memory.type.replace("_", " ").capitalize())

    @admin.display(description="version", ordering="version")
    def revision(self, memory: Memory) -> str:
        """Return the current version."""
        return f"v{memory.version}"

    @admin.display(description="updated", ordering="updated_at")
    def updated(self, memory: Memory) -> SafeString:
        """Return when it last changed."""
        return cells.moment(memory.updated_at)

    @admin.display(description="seen", ordering="seen_count")
    def seen(self, memory: Memory) -> str:
        """Return how often the same text was written."""
        return f"{memory.seen_count:,}×"


def _compared(newer: dict[str, Any], older: dict[str, Any]) -> dict[str, Any]:
    gone = [tag for tag in older["tags"] if tag not in newer["tags"]]
    come = [tag for tag in newer["tags"] if tag not in older["tags"]]
    return {
        **newer,
        "title_diff": word_diff(older["title"] or "", newer["title"] or "") if newer["title"] != older["title"] else "",
        "diff": word_diff(older["content"] or "", newer["content"] or "")
        if newer["content"] != older["content"]
        else "",
        "tags_gone": gone,
        "tags_come": come,
    }
