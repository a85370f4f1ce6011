"""The navigation of the governance pages."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import NoReverseMatch, reverse

from governance.staleness.selectors import count_stale
from memoryhub.core.admin import HubModelAdmin

_PAGES = (
    ("Needs recheck", "affirmation"),
    ("Redaction", "redaction"),
    ("Retention", "retentionrun"),
    ("Holds", "hold"),
    ("Roll back", "rollback"),
)


class GovernanceAdmin(HubModelAdmin):
    tab = "governance_affirmation"
    tab_name = "Governance"
    change_list_template = "admin/governance/change_list.html"

    def tab_count(self) -> int:
        return count_stale()

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        return super().changelist_view(request, {"section": section_pages(request), **(extra_context or {})})

    def page(self, request: HttpRequest, template: str, found: Any, **context: Any) -> TemplateResponse:
        """Return a page of the section; its template extends ``admin/governance/base.html``."""
        return super().page(request, template, found, **{"section": section_pages(request), **context})


def section_pages(request: HttpRequest) -> list[dict[str, Any]]:
    """Return the pages of the navigation, with the number of items that need rechecking."""
    found = ((name, _address(model)) for name, model in _PAGES)
    counts = {_PAGES[0][0]: count_stale()}
    return [
        {"name": name, "url": url, "current": request.path.startswith(url), "count": counts.get(name, 0)}
        for name, url in found
        if url
    ]


def _address(model: str) -> str:
    try:
        return reverse(f"admin:governance_{model}_changelist")
    except NoReverseMatch:
        return ""
