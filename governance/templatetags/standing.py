"""How governance stands to a thing, for the page of that thing: what holds it, and why it should be looked at again."""

from __future__ import annotations

from typing import Any

from django import template

from governance.retention.schemas import HoldView
from governance.retention.selectors import holds_that_keep
from governance.staleness.schemas import StaleList, Why
from governance.staleness.selectors import list_stale

register = template.Library()


@register.simple_tag
def holds_on(stream: str) -> list[HoldView]:
    """Return the holds in force that keep a stream: its own, those of its sessions, and those of the whole store."""
    return holds_that_keep(stream_id=stream)


@register.simple_tag
def reasons_to_look(entity_id: int) -> list[dict[str, Any]]:
    """Return why a memory or decision is to be affirmed; but for a revert, of which its page tells itself."""
    found = list_stale(command=StaleList(id=entity_id)).results
    return [reason for each in found for reason in each["reasons"] if reason["why"] != Why.REVERTED]
