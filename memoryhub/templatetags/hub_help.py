"""The address of the guide that explains a page."""

from __future__ import annotations

from typing import Any

from django import template

from memoryhub.web.help_page import guide_for

register = template.Library()


@register.simple_tag(takes_context=True)
def help_url(context: dict[str, Any]) -> str:
    """Return the address of the current page's guide; error pages have no URL name."""
    match = getattr(context.get("request"), "resolver_match", None)
    return f"/help/{guide_for(match.url_name or '' if match else '')}"
