"""What the lists about memories share."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse

from memoryhub.core.admin import HubModelAdmin


class SectionAdmin(HubModelAdmin):
    change_list_template = "admin/memories/change_list.html"
    add_label = ""  # text of the button that opens the form of a new item

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        return super().changelist_view(request, {"add_label": self.add_label, **(extra_context or {})})

    def page(self, request: HttpRequest, template: str, found: Any, **context: Any) -> TemplateResponse:
        return super().page(request, template, found, **{"list_label": self.opts.verbose_name_plural, **context})
