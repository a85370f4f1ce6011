"""The admin of all memories, and the page of one memory of any kind."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.views.decorators.http import require_POST

from memories.admin import listing
from memories.admin.comparing import change, head, history_of, sides
from memories.admin.editing import EditingViews
from memories.admin.filters import (
    AuthorFilter,
    ConflictFilter,
    DeletedFilter,
    KindFilter,
    ScopeFilter,
    TagFilter,
    TypeFilter,
    UpdatedFilter,
)
from memories.admin.kind_parts import own_parts
from memories.admin.relations import RelationViews, relations_shown
from memories.admin.rendering import UseFilter, render, use_shown
from memories.admin.review import ReviewViews
from memories.admin.review_item import ReviewFilter
from memories.diff import Effort
from memories.models import Memory, MemoryVersion
from memories.selectors import open_conflicts
from memoryhub.core.admin import cells, needs
from memoryhub.core.errors import NotFound
from memoryhub.core.kinds.builtin import KINDS
from memoryhub.core.log.quarantine import quarantined_among
from memoryhub.core.models import RawEvent
from memoryhub.core.permissions import Act
from sessions_app.admin.turns import SessionFilter

_DIFFS = 10


class VersionViews(EditingViews):
    def versions_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Show the differences between versions, newest first, ten a page."""
        memory: Memory = self.find(request, object_id)
        versions = history_of(memory)
        numbers = [version["version"] for version in versions]
        before = request.GET.get("before", "")
        if before.isdecimal():
            versions = [version for version in versions if version["version"] < int(before)]
        shown = versions[: _DIFFS + 1]
        first = [{**shown[-1], "first": True}] if shown and shown[-1]["version"] == 1 else []
        effort = Effort()
        changes = [change(newer, older, effort) for newer, older in pairwise(shown)] + first
        older = changes[-1]["version"] if changes and not first else None
        context = {"subtitle": "Versions", "changes": changes, "older": older, **_choice(numbers, numbers[1::-1])}
        return self.page(request, "admin/memories/memory/versions.html", memory, **context)

    def compare_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Show two versions side by side, by default the last two."""
        memory: Memory = self.find(request, object_id)
        versions = {version["version"]: version for version in history_of(memory)}
        wanted = [request.GET.get("from", ""), request.GET.get("to", "")]
        chosen = [int(text) if text.isdecimal() else max(memory.version - 1 + at, 1) for at, text in enumerate(wanted)]
        for number in chosen:
            if number not in versions:
                raise NotFound(f"#{memory.id} has no version {number}; it has 1 to {memory.version}")
        pair = sides(versions[chosen[0]], versions[chosen[1]])
        context = {
            "subtitle": "Compare",
            "sides": pair,
            "heads": [head(side.version) for side in pair],
            "labels": [f"Version {number}" for number in chosen],
            "same": chosen[0] == chosen[1],
        }
        numbers = list(versions)
        return self.page(request, "admin/memories/memory/compare.html", memory, **context, **_choice(numbers, chosen))


def _choice(numbers: list[int], chosen: list[int]) -> dict[str, Any]:
    return {"numbers": numbers, "from_version": chosen[0], "to_version": chosen[-1]}


_VERSIONS_SHOWN = 6


@admin.register(Memory)
class MemoryAdmin(ReviewViews, RelationViews, VersionViews):
    add_label = "Write a memory"
    list_display = ("number", "about", "kind_badge", "author", "updated")
    list_filter = (
        KindFilter,
        TypeFilter,
        TagFilter,
        ReviewFilter,
        DeletedFilter,
        ConflictFilter,
        UseFilter,
        UpdatedFilter,
        AuthorFilter,
        ScopeFilter,
        SessionFilter,
    )
    stream_kind = "memory"
    detail_template = "admin/memories/memory/detail.html"
    empty_title = "No memories yet"
    empty_text = "Write the first one, connect an agent over MCP, or run “memory-hub import markdown” to import notes."

    def get_urls(self) -> list[URLPattern]:
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
        versions = MemoryVersion.objects.filter(memory_id=found.id).order_by("-version")
        found.open_conflicts = open_conflicts([found.id]).get(found.id, [])  # type: ignore[attr-defined]
        found.is_quarantined = found.id in quarantined_among([found.id])  # type: ignore[attr-defined]
        return {
            "title": found.title,
            "rendered": render(found.content, KINDS[found.kind].rendering),
            "own": own_parts(found),
            "mark": listing.kind_and_type(found),
            "warnings": listing.warnings(found),
            "event": RawEvent.objects.filter(position=found.id).defer("payload_json").first(),
            "versions": versions[:_VERSIONS_SHOWN],
            "tags": cells.tag_links(found.tags, self.url("changelist")),
            **relations_shown(found),
            **use_shown(found),
        }

    def page(self, request: HttpRequest, template: str, found: Any, **context: Any) -> TemplateResponse:
        if found is not None:
            url = reverse(f"admin:memories_{found.kind}_changelist")
            context = {"list_url": url, "list_label": KINDS[found.kind].plural, **context}
        return super().page(request, template, found, **context)
