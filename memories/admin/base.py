"""What the pages about memories share: the base class, and the message and redirect after a write."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse

from memories.present import amended_text
from memories.schemas import WriteResult
from memoryhub.core.admin import HubModelAdmin
from memoryhub.core.errors import ConflictError, Gone, HubError, Invalid
from memoryhub.core.text import as_sentence


class SectionAdmin(HubModelAdmin):
    change_list_template = "admin/memories/change_list.html"
    add_label = ""  # text of the button that opens the form of a new item

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        return super().changelist_view(request, {"add_label": self.add_label, **(extra_context or {})})

    def page(self, request: HttpRequest, template: str, item: Any, /, **context: Any) -> TemplateResponse:
        return super().page(request, template, item, **{"list_label": self.opts.verbose_name_plural, **context})


_TOOL_NAMES = {
    "; bring it back with memory_restore": "; restore it first",
    ", or pass if_exists=update or keep": "",
    "; to copy it elsewhere, use memory_write": "",
}


def show_result(request: HttpRequest, result: WriteResult, message: str = "") -> HttpResponse:
    messages.success(request, message or result.status.message.format(id=result.id, version=result.version))
    warn_of_redactions(request, result.redacted)
    if amended := amended_text(result.amendments):
        messages.info(request, as_sentence(amended))
    return redirect("admin:memories_memory_change", result.id)


def warn_of_redactions(request: HttpRequest, redacted: list[str]) -> None:
    if redacted:
        messages.warning(request, f"Secrets or private text were masked before saving: {', '.join(redacted)}.")


def refused(request: HttpRequest, error: HubError, memory_id: int) -> HttpResponse:
    messages.error(request, sentence(error))
    return redirect("admin:memories_memory_change", memory_id)


def sentence(error: HubError) -> str:
    """Return an error as a sentence for a page, without the names of MCP tools."""
    text = error.message
    for hint, replacement in _TOOL_NAMES.items():
        text = text.replace(hint, replacement)
    return as_sentence(text)


def show_error(form: Any, error: HubError) -> None:
    """Add an error of a service to a form; raise it if it is not about the input."""
    if not isinstance(error, ConflictError | Gone | Invalid):
        raise error
    form.add_error("title" if isinstance(error, ConflictError) else None, sentence(error))
