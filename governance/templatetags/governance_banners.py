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
    return holds_that_keep(stream_id=stream)


@register.simple_tag
def recheck_reasons(entity_id: int) -> list[dict[str, Any]]:
    stale = list_stale(command=StaleList(id=entity_id)).results
    return [reason for item in stale for reason in item["reasons"] if reason["why"] != Why.REVERTED]
