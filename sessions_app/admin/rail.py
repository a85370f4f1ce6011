"""The rail: a timeline's page as the admin shows it, beside any thing to which things happened."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest

from memoryhub.core.contributions import parts_of
from memoryhub.core.models import RawEvent
from sessions_app.events import COMMIT_RECORDED
from sessions_app.timeline import timeline_page

_COUNTED = {
    "turn.began": "turn",
    "message.user": "prompt",
    "message.tool": "tool call",
    "command.run": "command",
    "file.edited": "edit",
    "memory.written": "memory",
    "decision.recorded": "decision",
    "commit.recorded": "commit",
}
"""What is worth counting, in this order."""
_PLURALS = {"memory": "memories"}


def rail(request: HttpRequest, events: QuerySet[RawEvent]) -> dict[str, Any]:
    """Return the context of a rail: the page of ``events`` that is asked for, and what is told of its commits."""
    page = timeline_page(events, before=_position(request, "before"), after=_position(request, "after"))
    entries = (entry for day in page.days for part in day.parts for entry in part.entries)
    commits = [entry.position for entry in entries if entry.type == COMMIT_RECORDED.name]
    return {"timeline": page, "commit_parts": parts_of("commit", commits)}


def _position(request: HttpRequest, name: str) -> int | None:
    given = request.GET.get(name, "")
    return int(given) if given.isascii() and given.isdecimal() and len(given) <= 18 else None


def counted_things(types: dict[str, int]) -> list[tuple[int, str]]:
    """Return what is worth counting of events, from how many there are of each type: ``[(2, "turns"), …]``."""
    found = [(types[name], noun) for name, noun in _COUNTED.items() if types.get(name)]
    return [(count, noun if count == 1 else _PLURALS.get(noun, f"{noun}s")) for count, noun in found]
