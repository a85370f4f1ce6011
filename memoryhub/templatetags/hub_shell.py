"""What pages share: navigation, guide and keys, the mark of a live page, the log's state, and saved views of lists."""

from __future__ import annotations

from typing import Any

from django import template
from django.urls import reverse

from memoryhub.core.stores.store import current_store
from memoryhub.ops.jobs.status import chain_state
from memoryhub.registry.saved_views import normal_query, saved_views
from memoryhub.web.help_page import guide_for
from memoryhub.web.inbox_page import KEYS as INBOX_KEYS
from memoryhub.web.inbox_page import inbox_of
from memoryhub.web.navigation import hub_pages, sections

register = template.Library()

Keys = tuple[tuple[str, str], ...]
# Keys by the start of the URL's name
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
    return f"/help/{guide_for(_url_name(context))}"


@register.simple_tag(takes_context=True)
def inbox(context: dict[str, Any]) -> dict[str, Any]:
    """Return the list of the inbox beside the current page's item, once for the whole page."""
    request = context["request"]
    if not hasattr(request, "inbox"):
        request.inbox = inbox_of(request)
    return dict(request.inbox)


@register.simple_tag(takes_context=True)
def page_keys(context: dict[str, Any]) -> Keys:
    name = _url_name(context)
    for prefix, keys in _KEYS.items():
        if name.startswith(prefix):
            return keys
    return ()


@register.simple_tag(takes_context=True)
def navigation(context: dict[str, Any]) -> dict[str, Any]:
    """Return the links of the current page's navigation, and where its search field leads; empty if signed out."""
    user = getattr(context.get("request"), "user", None)
    place = context.get("place")
    if user is None or not user.is_authenticated:
        return {}
    name = _url_name(context)
    listed = sections(user, place, name) if place else []
    links = hub_pages(user, "" if place else name)
    more_sections = [section for section in listed if section["is_more"]]
    more_pages = [link for link in links if link["is_more"]]
    return {
        "sections": [section for section in listed if not section["is_more"]],
        "hub_pages": [link for link in links if not link["is_more"]],
        "more_sections": more_sections,
        "more_hub_pages": more_pages,
        "more_is_open": any(link["current"] for link in (*more_sections, *more_pages)),
        "search": reverse("admin:memories_searchdocument_changelist") if place else "/find",
        "field": "query" if place else "q",
    }


@register.inclusion_tag("memoryhub/live.html", takes_context=True)
def live_mark(context: dict[str, Any]) -> dict[str, Any]:
    """Renew the page's elements with ``data-live-part`` and an id when the store, or a job, has changed."""
    request = context["request"]
    view = "admin:live" if getattr(request, "store", None) else "live-jobs"
    url = context.get("live_url") or reverse(view)
    return {"url": url, "version": getattr(request, "live_version", "")}


@register.inclusion_tag("memoryhub/chain_panel.html", takes_context=True)
def chain_panel(context: dict[str, Any]) -> dict[str, Any]:
    return {"chain": chain_state(), "csrf_token": context.get("csrf_token"), "may": context.get("may")}


@register.inclusion_tag("admin/saved_views.html", takes_context=True)
def list_views(context: dict[str, Any], changelist: Any) -> dict[str, Any]:
    request, opts = context["request"], changelist.opts
    page = f"{opts.app_label}/{opts.model_name}/"
    views = list(saved_views(user=request.user, stores=[current_store()], page=page))
    query = normal_query(request.GET.urlencode())
    current = next((view for view in views if view.query == query), None)
    csrf_token = context.get("csrf_token")
    return {"views": views, "current": current, "query": query, "page": page, "csrf_token": csrf_token}


def _url_name(context: dict[str, Any]) -> str:
    match = getattr(context.get("request"), "resolver_match", None)  # error pages have none
    return getattr(match, "url_name", None) or ""
