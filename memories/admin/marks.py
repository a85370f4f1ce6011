"""What lists and pages of memories show of a memory at a glance."""

from __future__ import annotations

from typing import Any

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from memories.admin.filters import type_label
from memories.models import Memory, MemoryScope, ReviewState
from memoryhub.core import clock
from memoryhub.core.admin import cells
from memoryhub.core.kinds import DEFAULT_KIND, KINDS

_WIDTH = 56


def is_expired(memory: Memory) -> bool:
    """Whether the memory held for a time that has passed."""
    return memory.valid_until is not None and memory.valid_until <= clock.now()


def warnings(memory: Memory, *, with_expiry: bool = True) -> SafeString:
    """Return marks for what to know before relying on a memory, and for a scope that is not its store's own."""
    found = [
        ("deleted", "Deleted", bool(memory.deleted_at)),
        ("proposed", "Proposed", memory.review == ReviewState.PROPOSED),
        ("rejected", "Rejected", memory.review == ReviewState.REJECTED),
        ("expired", "Expired", with_expiry and is_expired(memory)),
        ("conflict", "Conflict", bool(getattr(memory, "open_conflicts", ()))),
        ("session", "Session", memory.scope == MemoryScope.SESSION),
    ]
    return format_html_join(" ", "{}", ((cells.badge(value, label),) for value, label, holds in found if holds))


def kind_and_type(memory: Memory) -> SafeString:
    """Return badges of the kind and the type; of the default kind, of the type alone."""
    mark = cells.badge(memory.type, type_label(memory.type))
    if memory.kind == DEFAULT_KIND:
        return mark
    return format_html(
        '{} <span class="kind-type">{}</span>',
        cells.badge(memory.kind, KINDS[memory.kind].label),
        type_label(memory.type),
    )


def bar(value: float, highest: float) -> SafeString:
    """Return a number with a bar beside it."""
    width = round(min(max(value / highest, 0), 1) * _WIDTH, 1)
    return format_html(
        '<span class="gauge"><span class="gauge-number">{}</span><svg width="{}" height="6" viewBox="0 0 {} 6" '
        'aria-hidden="true"><rect class="gauge-ground" width="{}" height="6" rx="3"/>'
        '<rect class="gauge-fill" width="{}" height="6" rx="3"/></svg></span>',
        f"{value:g}",
        *[_WIDTH] * 3,
        width,
    )


def validity(memory: Memory) -> SafeString:
    """Return until when a memory holds, with a mark where that has passed."""
    if memory.valid_until is None:
        return format_html('<span class="quiet">{}</span>', "always")
    day = memory.valid_until.strftime("%Y-%m-%d")
    exact: Any = memory.valid_until.strftime("%Y-%m-%d %H:%M:%S UTC")
    mark = cells.badge("expired", "Expired") if is_expired(memory) else ""
    return format_html('<time datetime="{}" title="{}">{}</time> {}', memory.valid_until.isoformat(), exact, day, mark)
