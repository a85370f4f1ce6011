"""The pages about memories as one section: what stands above each of its lists."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse

from memories.models import Conflict
from memoryhub.core.admin import HubModelAdmin

_PAGES = (
    ("All", "memory"),
    ("Observations", "observation"),
    ("Guidelines", "guideline"),
    ("Tools", "tool"),
    ("Knowledge", "knowledge"),
    ("Conflicts", "conflict"),
    ("Tags", "tag"),
    ("Search", "searchdocument"),
    ("Context pack", "contextpack"),
)
_FIRST = {"contextpack": "now"}
"""Where a page of the section does not begin with its list."""


class SectionAdmin(HubModelAdmin):
    """A list of the section; all share one tab."""

    tab = "memories_memory"
    change_list_template = "admin/memories/change_list.html"
    add_label = ""
    """What the button says that leads to the form of a new one."""

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Show the list below the section's pages."""
        context = {"section": section_pages(request), "add_label": self.add_label}
        return super().changelist_view(request, {**context, **(extra_context or {})})

    def page(self, request: HttpRequest, template: str, found: Any, **context: Any) -> TemplateResponse:
        """Return a page of the section."""
        return super().page(request, template, found, **{"list_label": self.opts.verbose_name_plural, **context})


def section_pages(request: HttpRequest) -> list[dict[str, Any]]:
    """Return the section's pages for the navigation; conflicts with the number of those that are open."""
    open_now = Conflict.objects.filter(resolved_at__isnull=True).count()
    return [_page(request, name, model, open_now) for name, model in _PAGES]


def _page(request: HttpRequest, name: str, model: str, open_conflicts: int) -> dict[str, Any]:
    within = reverse(f"admin:memories_{model}_changelist")
    url = reverse(f"admin:memories_{model}_{_FIRST[model]}") if model in _FIRST else within
    return {
        "name": name,
        "url": url,
        "current": request.path in (url, within),
        "count": open_conflicts if model == "conflict" else 0,
    }


def page_name(model: str) -> str:
    """Return what the list of a model is called."""
    return next(name for name, each in _PAGES if each == model)
