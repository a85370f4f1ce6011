"""The mark of a page that follows changes."""

from __future__ import annotations

from typing import Any

from django import template
from django.urls import reverse

register = template.Library()


@register.inclusion_tag("memoryhub/live.html", takes_context=True)
def live_mark(context: dict[str, Any]) -> dict[str, Any]:
    """Renew the page's elements with ``data-live-part`` and an id when the store, or a job, has changed."""
    request = context["request"]
    url = context.get("live_url") or reverse("admin:live" if getattr(request, "store", None) else "live-jobs")
    return {"url": url, "version": getattr(request, "live_version", "")}
