"""The admin of all memories, and the page that each memory has, of whatever kind it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.views.decorators.http import require_POST

from memories.admin import marks
from memories.admin.filters import (
    ConflictFilter,
    DeletedFilter,
    KindFilter,
    ScopeFilter,
    SessionFilter,
    TagFilter,
    TypeFilter,
    UpdatedFilter,
)
from memories.admin.kind_parts import own_parts
from memories.admin.relations import RelationViews, relations_shown
from memories.admin.rendering import render
from memories.admin.review import ReviewViews
from memories.admin.review_lists import ReviewFilter
from memories.admin.section import page_name
from memories.admin.uses import UseFilter, use_shown
from memories.admin.versions import VersionViews
from memories.models import Memory, MemoryVersion
from memories.selectors import open_conflicts
from memoryhub.core.admin import cells, needs
from memoryhub.core.kinds import KINDS
from memoryhub.core.models import RawEvent
from memoryhub.core.permissions import Act

_VERSIONS_SHOWN = 6


@admin.register(Memory)
class MemoryAdmin(ReviewViews, RelationViews, VersionViews):
    """Memories of all kinds."""

    tab = ""
    add_label = "Write a memory"
    list_display = ("number", "about", "kind_badge", "revision", "author", "updated", "seen")
    list_filter = (
        KindFilter,
        TypeFilter,
        ReviewFilter,
        DeletedFilter,
        ConflictFilter,
        UseFilter,
        ScopeFilter,
        UpdatedFilter,
        TagFilter,
        SessionFilter,
    )
    stream_kind = "memory"
    detail_template = "admin/memories/memory/detail.html"
    empty_title = "No memory here"
    empty_text = "Write the first one, or let an agent write it over MCP; “memory-hub import markdown” brings notes in."

    def get_urls(self) -> list[URLPattern]:
        """Add what can be done with one memory."""

        def page(address: str, view: Callable[..., HttpResponse], name: str) -> URLPattern:
            wrapped = self.admin_site.admin_view(view)
            return path(f"<path:object_id>/{address}/", wrapped, name=f"memories_memory_{name}")

        own = [
            page("edit", needs(Act.WRITE, self.edit_view), "edit"),
            page("versions/<int:version>/again", require_POST(needs(Act.WRITE, self.again_view)), "again"),
            page("versions", self.versions_view, "versions"),
            page("compare", self.compare_view, "compare"),
            page("restore", require_POST(needs(Act.WRITE, self.restore_view)), "restore"),
            page("promote", require_POST(needs(Act.WRITE, self.promote_view)), "promote"),
            page("erase", needs(Act.GOVERN, self.erase_view), "erase"),
            page("relate", require_POST(needs(Act.WRITE, self.relate_view)), "relate"),
            page("lookup", self.lookup_view, "lookup"),
            page("relations/<int:relation>/remove", require_POST(needs(Act.WRITE, self.unrelate_view)), "unrelate"),
        ]
        return [*self.review_urls(), *own, *super().get_urls()]

    def detail(self, request: HttpRequest, found: Memory) -> dict[str, Any]:
        """Return the rendered text, what its kind alone has, and the evidence."""
        versions = MemoryVersion.objects.filter(memory_id=found.id).order_by("-version")
        found.open_conflicts = open_conflicts([found.id]).get(found.id, [])  # type: ignore[attr-defined]
        return {
            "title": found.title,
            "rendered": render(found.content, KINDS[found.kind].rendering),
            "own": own_parts(found),
            "mark": marks.kind_and_type(found),
            "warnings": marks.warnings(found),
            "event": RawEvent.objects.filter(position=found.id).defer("payload_json").first(),
            "versions": versions[:_VERSIONS_SHOWN],
            "tags": cells.tag_links(found.tags, self.url("changelist")),
            **relations_shown(found),
            **use_shown(found),
        }

    def page(self, request: HttpRequest, template: str, found: Any, **context: Any) -> TemplateResponse:
        """Return a page about a memory, below the list of its kind."""
        if found is not None:
            url = reverse(f"admin:memories_{found.kind}_changelist")
            context = {"list_url": url, "list_label": page_name(found.kind), **context}
        return super().page(request, template, found, **context)
