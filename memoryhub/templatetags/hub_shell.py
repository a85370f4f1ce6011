"""What surrounds every page: its navigation, and the address of its guide."""

from __future__ import annotations

from typing import Any

from django import template
from django.urls import reverse

from memoryhub.web.help_page import guide_for
from memoryhub.web.inbox_page import KEYS as INBOX_KEYS
from memoryhub.web.inbox_page import inbox_of
from memoryhub.web.navigation import hub_pages, sections

register = template.Library()

Keys = tuple[tuple[str, str], ...]
# By the start of the URL's name
_KEYS: dict[str, Keys] = {
    "inbox": INBOX_KEYS,
    "memories_review": INBOX_KEYS,
    "memories_conflict_change": INBOX_KEYS,
    "governance_affirmation": INBOX_KEYS,
    "graph": (("← → ↑ ↓", "next box in that direction"), ("g", "graph around the box")),
    "replay": (("←", "previous event"), ("→", "next event")),
}


@register.simple_tag(takes_context=True)
def help_url(context: dict[str, Any]) -> str:
    """Return the address of the current page's guide."""
    return f"/help/{guide_for(_url_name(context))}"


@register.simple_tag(takes_context=True)
def inbox(context: dict[str, Any]) -> dict[str, Any]:
    """Return the list of the inbox beside the current page's item, once for the whole page."""
    request = context["request"]
    if not hasattr(request, "inbox"):
        request.inbox = inbox_of(request)
    entries: dict[str, Any] = request.inbox
    return entries


@register.simple_tag(takes_context=True)
def page_keys(context: dict[str, Any]) -> Keys:
    """Return the keys of the current page, beside those of every page."""
    name = _url_name(context)
    return next((keys for prefix, keys in _KEYS.items() if name.startswith(prefix)), ())


@register.simple_tag(takes_context=True)
def navigation(context: dict[str, Any]) -> dict[str, Any]:
    """Return the links of the current page's navigation, and where its search field leads; empty if signed out."""
    user, place = getattr(context.get("request"), "user", None), context.get("place")
    if user is None or not user.is_authenticated:
        return {}
    name = _url_name(context)
    return {
        "sections": sections(user, place, name) if place else [],
        "hub_pages": hub_pages(user, "" if place else name),
        "search": reverse("admin:memories_searchdocument_changelist") if place else "/find",
        "field": "query" if place else "q",
    }


# Error pages have no URL name
def _url_name(context: dict[str, Any]) -> str:
    match = getattr(context.get("request"), "resolver_match", None)
    return match.url_name or "" if match else ""
