from __future__ import annotations

from typing import Any

from django import template

from memoryhub.ops.jobs.status import chain_state

register = template.Library()


@register.inclusion_tag("memoryhub/chain_panel.html", takes_context=True)
def chain_panel(context: dict[str, Any]) -> dict[str, Any]:
    """Show the log's head, anchor and last verification, with a button to verify it now."""
    return {"chain": chain_state(), "csrf_token": context.get("csrf_token"), "may": context.get("may")}
