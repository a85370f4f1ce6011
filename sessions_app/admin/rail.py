"""The rail: a timeline's page as the admin shows it, beside any thing to which things happened."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest

from memoryhub.core.contributions import parts_of
from memoryhub.core.event_types import event_types
from memoryhub.core.models import RawEvent
from sessions_app.events import COMMIT_RECORDED
from sessions_app.timeline import timeline_page


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
    tallied = [known for known in event_types() if known.is_tallied and known.nouns and types.get(known.name)]
    return [(types[known.name], known.nouns[types[known.name] != 1]) for known in tallied if known.nouns]
