"""The navigation of the pages about memories."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse

from memories.models import Conflict
from memories.review.selectors import count_waiting
from memoryhub.core.admin import HubModelAdmin
from memoryhub.core.kinds.builtin import KINDS

_PAGES = (
    ("All", "memory"),
    ("Review", "review"),
    *((kind.plural, kind.name) for kind in KINDS.values()),
    ("Conflicts", "conflict"),
    ("Tags", "tag"),
    ("Search", "searchdocument"),
    ("Context pack", "contextpack"),
)
# The first view of a page that does not start with its list.
_FIRST = {"contextpack": "now"}


class SectionAdmin(HubModelAdmin):
    tab = "memories_memory"
    change_list_template = "admin/memories/change_list.html"
    add_label = ""  # text of the button that opens the form of a new item

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        context = {"section": section_pages(request), "add_label": self.add_label}
        return super().changelist_view(request, {**context, **(extra_context or {})})

    def page(self, request: HttpRequest, template: str, found: Any, **context: Any) -> TemplateResponse:
        return super().page(request, template, found, **{"list_label": self.opts.verbose_name_plural, **context})


def section_pages(request: HttpRequest) -> list[dict[str, Any]]:
    """Return the pages of the navigation, with the numbers of unresolved conflicts and of memories in review."""
    counts = {"conflict": Conflict.objects.filter(resolved_at__isnull=True).count(), "review": count_waiting()}
    return [_page(request, name, model, counts.get(model, 0)) for name, model in _PAGES]


def _page(request: HttpRequest, name: str, model: str, count: int) -> dict[str, Any]:
    within = reverse(f"admin:memories_{model}_changelist")
    url = reverse(f"admin:memories_{model}_{_FIRST[model]}") if model in _FIRST else within
    return {
        "name": name,
        "url": url,
        "current": request.path in (url, within) or (model == "review" and request.path.startswith(within)),
        "count": count,
    }


def page_name(model: str) -> str:
    return next(name for name, page_model in _PAGES if page_model == model)
