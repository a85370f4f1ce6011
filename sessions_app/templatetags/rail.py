from __future__ import annotations

import json
from typing import Any

from django import template

from memoryhub.core.admin import cells
from memoryhub.core.events.event_types import event_type
from memoryhub.core.text import first_line
from sessions_app.timeline import TimelineItem

register = template.Library()

# Characters per text or payload; the event's own page shows all.
MAX_SHOWN = 4_000
_LINKED = {"memory", "decision", "commit", "iteration", "pack"}


@register.filter
def label(entry: TimelineItem) -> str:
    type_ = event_type(entry.type)
    return type_.label if type_ else entry.type


@register.filter
def icon(entry: TimelineItem) -> str:
    type_ = event_type(entry.type)
    return type_.icon if type_ else "dot"


@register.filter
def css(entry: TimelineItem) -> str:
    thing, _, _ = entry.type.partition(".")
    names = f"is-{thing} is-{entry.type.replace('.', '-')}"
    return f"{names} is-bad" if entry.failed else names


@register.filter
def excerpt(text: str) -> str:
    text = text.strip("\n")
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}\n…"


@register.filter
def pretty(payload: Any) -> str:
    return excerpt(json.dumps(payload, indent=2, ensure_ascii=False)) if payload else ""


@register.filter
def is_cut(entry: TimelineItem) -> bool:
    return len(entry.text) > MAX_SHOWN or len(json.dumps(entry.fields, indent=2, ensure_ascii=False)) > MAX_SHOWN


@register.filter
def part(parts: dict[int, dict[str, Any]], entry: TimelineItem) -> dict[str, Any]:
    return parts.get(entry.position, {})


@register.filter
def link_name(entry: TimelineItem) -> str:
    thing, _, tail = entry.stream_id.partition(":")
    if thing not in _LINKED or not tail:
        return ""
    if thing == "commit":
        return tail[:8]
    return f"{thing} #{tail}"


register.filter("lasted", cells.lasted)
register.filter("first_line", first_line)
