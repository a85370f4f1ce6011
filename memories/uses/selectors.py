from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from pydantic import BaseModel

from memories.models import IGNORED_AFTER, MemoryUse
from memories.uses.events import MEMORIES_USED, Use
from memories.uses.notes import waiting_notes
from memoryhub.core import log
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS
from memoryhub.core.stores.store import current_store

# Use adds at most this share to a score: it decides between nearly equal answers
MOST = 0.10

# Points at which half of it is reached. Being given or found does not count, or what is shown often would be shown more
# often for that alone.
_HALF = 5

_USED = (
    "SELECT memory_id, fetched + updated + 2 * cited FROM memories_memoryuse "
    f"WHERE memory_id IN {IDS} AND fetched + updated + cited > 0"
)


def points_query(ids: Sequence[int]) -> rows.Query:
    """Return the query of the ids that were used, with their points."""
    return _USED, [json.dumps(list(ids))]


def use_weights(used: Sequence[tuple[int, int]]) -> dict[int, float]:
    """Return a factor of 1 to 1.1 for each row of ``points_query``."""
    return {memory_id: weight_of(points) for memory_id, points in used}


def weight_of(points: int) -> float:
    """Return the factor for points of use: 1.05 at five points, always below 1.1."""
    return 1 + MOST * points / (points + _HALF)


# Events that are read for a session: notes are folded every hour, so those of a session follow its start
_FOLDED = 500


def ids_read_in(sessions: Mapping[int, str], *, most: int = _FOLDED) -> dict[int, set[int]]:
    """Map sessions to what they found or fetched; ``sessions`` are names by id."""
    read: dict[int, set[int]] = {session: set() for session in sessions}
    by_name = dict(zip(sessions.values(), sessions, strict=True))
    for note in waiting_notes(current_store()):
        if note.use is not Use.GIVEN and note.session in by_name:
            read[by_name[note.session]].update(note.ids)
    folded = log.events().of_type(MEMORIES_USED).readable().window(after=min(sessions, default=0))
    for payload in folded.values_list("payload_json", flat=True)[:most]:
        for session, ids in json.loads(payload or "{}").get("sessions", {}).items():
            if int(session) in read:
                read[int(session)].update(ids)
    return read


class UseView(BaseModel):
    """Use of a memory, as JSON."""

    # Packs that included it
    given: int = 0
    # Times a search or query showed it
    found: int = 0
    # Times it was read by id or name
    fetched: int = 0
    # Memories, decisions, answers and summaries that name it
    cited: int = 0
    # Versions after the first
    updated: int = 0
    # Given by at least IGNORED_AFTER packs, but never used
    ignored: bool = False
    last_given_at: datetime | None = None
    # When it was last found, fetched, cited or updated
    last_used_at: datetime | None = None


_NOTHING = UseView().model_dump(mode="json")


def uses_of(ids: Sequence[int]) -> dict[int, dict[str, Any]]:
    """Return the use of memories of the current store as JSON data, by id."""
    views = dict.fromkeys(ids, _NOTHING)
    for use in MemoryUse.objects.filter(memory_id__in=list(ids)):
        counts = {name.value: getattr(use, name.value) for name in Use}
        ignored = counts.pop("given") >= IGNORED_AFTER and not any(counts.values())
        times = {"last_given_at": use.last_given_at, "last_used_at": use.last_used_at}
        view = UseView(given=use.given, **counts, ignored=ignored, **times)
        views[use.memory_id] = view.model_dump(mode="json")
    return views
