"""What a client's status line says of a session: what it was given, and what waits for a person."""

from __future__ import annotations

from memories.models import ContextPack
from memories.pack_sorts import NOTE, RECALL, reference_of
from memories.review.selectors import count_waiting
from memoryhub.core.contributions import status_parts
from memoryhub.core.text import counted


def session_status(session_id: str) -> str:
    """Return a few words, such as ``3 recalled, 1 note, 2 to review``; "" if there is nothing to tell."""
    recalled: set[str] = set()
    notes = 0
    for pack in ContextPack.objects.filter(session_id=session_id).only("marks"):
        if pack.sort is RECALL:
            recalled.update(map(reference_of, pack.marks))
        elif pack.sort is NOTE:
            notes += 1
    waiting = count_waiting()
    parts = []
    if recalled:
        parts.append(f"{len(recalled)} recalled")
    if notes:
        parts.append(counted(notes, "note"))
    if waiting:
        parts.append(f"{waiting} to review")
    return ", ".join(parts)


status_parts.append(session_status)
