"""What is held, by the names that people know: titles and numbers instead of streams."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from governance.models import Hold
from memoryhub.core.entities import Entity, find_entities
from sessions_app.models import Session

_SESSION = "session"
_NUMBERED = frozenset({"memory", "decision", "iteration"})
"""What has a stream of its own that ends in its number."""


def hold_rows(holds: Iterable[Hold]) -> list[dict[str, Any]]:
    """Return holds, each with ``type``, ``label`` and ``title`` of what it is on, by two queries for any number."""
    found = list(holds)
    parts = [hold.stream_id.partition(":") for hold in found]
    known = find_entities(int(tail) for _, _, tail in parts if _is_number(tail))
    names = [tail for kind, _, tail in parts if kind == _SESSION]
    purposes = dict(Session.objects.filter(session_id__in=names).values_list("session_id", "purpose"))
    return [
        {"hold": hold, "type": kind, "label": kind.capitalize(), "title": _title(kind, tail, known, purposes)}
        for hold, (kind, _, tail) in zip(found, parts, strict=True)
    ]


def stream_of_number(typed: str) -> str:
    """Return the stream of the memory, decision, iteration or session of a number; empty where there is none."""
    number = typed.removeprefix("#")
    entity = find_entities([int(number)]).get(int(number)) if _is_number(number) else None
    if entity is None:
        return ""
    if entity.type == _SESSION:
        return f"{_SESSION}:{Session.objects.values_list('session_id', flat=True).get(id=entity.id)}"
    return f"{entity.type}:{entity.id}" if entity.type in _NUMBERED else ""


def _title(kind: str, tail: str, known: Mapping[int, Entity], purposes: Mapping[str, str]) -> str:
    if kind == _SESSION:
        purpose = purposes.get(tail, "")
        return f"{purpose} ({tail})" if purpose else tail
    entity = known.get(int(tail)) if _is_number(tail) else None
    return f"{entity.title} (#{entity.id})" if entity and entity.type == kind else f"#{tail}"


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 15
