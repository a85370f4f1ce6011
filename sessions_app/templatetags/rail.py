"""How an entry of the rail looks: its mark, its icon, and its payload as text."""

from __future__ import annotations

import json
from typing import Any

from django import template

from memoryhub.core.admin import cells
from memoryhub.core.events.event_types import event_type
from memoryhub.core.text import first_line
from sessions_app.timeline import Entry

register = template.Library()

MAX_SHOWN = 4_000
"""Characters of one text or payload on the rail; the event's own page has all of it."""
_LINKED = {"memory", "decision", "commit", "iteration"}


@register.filter
def label(entry: Entry) -> str:
    """Return an entry's type in words."""
    known = event_type(entry.type)
    return known.label if known else entry.type


@register.filter
def icon(entry: Entry) -> str:
    """Return the name of an entry's icon."""
    known = event_type(entry.type)
    return known.icon if known else "dot"


@register.filter
def css(entry: Entry) -> str:
    """Return the style classes of an entry: its type, the thing that its type is about, and whether it failed."""
    thing, _, _ = entry.type.partition(".")
    return f"is-{thing} is-{entry.type.replace('.', '-')}" + (" is-bad" if entry.failed else "")


@register.filter
def shown(text: str) -> str:
    """Return at most 4,000 characters of a text."""
    text = text.strip("\n")
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}\n…"


@register.filter
def pretty(payload: Any) -> str:
    """Return JSON data for a person, at most 4,000 characters of it; nothing for nothing."""
    return shown(json.dumps(payload, indent=2, ensure_ascii=False)) if payload else ""


@register.filter
def is_cut(entry: Entry) -> bool:
    """Whether the rail shows less than all of an entry."""
    return len(entry.text) > MAX_SHOWN or len(json.dumps(entry.rest, indent=2, ensure_ascii=False)) > MAX_SHOWN


@register.filter
def part(parts: dict[int, dict[str, Any]], entry: Entry) -> dict[str, Any]:
    """Return what upper apps tell of the thing that an entry recorded."""
    return parts.get(entry.position, {})


@register.filter
def link_name(entry: Entry) -> str:
    """Return what to call the thing that an entry leads to; nothing where it leads nowhere."""
    thing, _, tail = entry.stream_id.partition(":")
    if thing not in _LINKED or not tail:
        return ""
    return tail[:8] if thing == "commit" else f"{thing} #{tail}"


register.filter("lasted", cells.lasted)
register.filter("first_line", first_line)
