"""The search page: what an agent is told, to the byte, and beside it why each hit stands where it does."""

from __future__ import annotations

import re
from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from memories.admin.answers import sentence
from memories.admin.search_page_form import SearchForm
from memories.admin.search_page_health import index_health
from memories.admin.section import SectionAdmin, section_pages
from memories.ends import reference
from memories.models import MemoryScope, SearchDocument
from memories.present import warnings
from memories.schemas import MemorySearch
from memories.tools.core import search
from memoryhub.core.admin import cells
from memoryhub.core.errors import HubError, Invalid, NotFound
from memoryhub.core.tokens import estimate_tokens

_PAGES = {
    "memory": "memories_memory_change",
    "decision": "decisions_decision_change",
    "commit": "sessions_app_commit_change",
    "session": "sessions_app_session_change",
}
_OWN_SCOPES = (MemoryScope.PROJECT, MemoryScope.SESSION)
_FACTOR = re.compile(r"(?P<name>.+) ×(?P<factor>[\d.]+)")
_MODES = {"basic": "plain words, without a full-text index", "fts5": "full text"}
_BAR = 72


@admin.register(SearchDocument)
class SearchAdmin(SectionAdmin):
    """Asks the store as an agent would. The rows of the index themselves have no pages: what they stand for has."""

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Show the form, the answer and the hits."""
        form = SearchForm(request.GET)
        command = form.command()
        context = {"title": "Search", "form": form, "section": section_pages(request), "health": index_health()}
        return self.page(request, "admin/memories/search.html", None, **context, **_answered(command))

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Lead to what a row stands for."""
        found = self.find(request, object_id)
        return redirect(address_of(found.source, found.pk))

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Lead to what a row stands for."""
        return self.change_view(request, object_id)


def _answered(command: MemorySearch | None) -> dict[str, Any]:
    if command is None:
        return {}
    try:
        answer = search(command)
    except (Invalid, NotFound) as error:
        return {"problem": sentence(error)}
    except HubError as error:
        return {"problem": error.message}
    found: dict[str, Any] = answer.data
    meta = found["meta"]
    mode = meta.get("mode") or ""
    return {
        "answer": answer.text,
        "tokens": estimate_tokens(answer.text),
        "meta": meta,
        "mode": _MODES.get(mode, mode),
        "hits": shown_hits(found["results"]),
    }


def shown_hits(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return hits as the page shows them: where each leads, how its score compares, and why it has it."""
    best = max((hit["score"] for hit in results), default=0.0) or 1.0
    return [
        {
            **hit,
            "reference": reference(hit),
            "url": address_of(hit["source"], hit["id"]) if hit["scope"] in _OWN_SCOPES or _is_own(hit) else "",
            "width": round(max(hit["score"], 0) / best * _BAR, 1),
            "reasons": reasons(hit.get("why", "")),
            "warnings": warnings(hit).strip(" ()"),
            "excerpt": marked_excerpt(hit["snippet"], hit.get("matches", [])),
        }
        for hit in results
    ]


def _is_own(hit: dict[str, Any]) -> bool:
    from memories.scopes import own_scope

    return bool(hit["scope"] == own_scope())


def address_of(source: str, document_id: int) -> str:
    """Return the page of what was found; a message has none but its event's."""
    return reverse(f"admin:{_PAGES.get(source, 'core_rawevent_change')}", args=[document_id])


def reasons(why: str) -> SafeString:
    """Return what a hit says of its rank as marks: what raised it, and what lowered it.

    Args:
        why: as ``coffee, machine; session ×1.8``: the words first, then the factors.
    """
    return format_html_join(" ", "{}", ((_reason(part),) for part in why.split("; ") if part))


def _reason(part: str) -> SafeString:
    found = _FACTOR.fullmatch(part)
    if not found:
        return format_html('<span class="reason-words">{}</span>', part)
    raised = float(found["factor"]) >= 1
    return cells.badge("raised" if raised else "lowered", part)


def marked_excerpt(text: str, matches: list[Any]) -> SafeString:
    """Return a snippet with what matched marked; ``matches`` are begins and ends, in order."""
    parts, at = [], 0
    for begin, end in matches:
        parts.append(format_html("{}<mark>{}</mark>", text[at:begin], text[begin:end]))
        at = end
    return format_html("{}{}", format_html_join("", "{}", ((part,) for part in parts)), text[at:])
