"""Telling what became of memories."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from pydantic import BaseModel

from memories.models import MemoryUse
from memories.uses.events import Use
from memoryhub.config.project_settings import project_settings
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS

MOST = 0.10
"""What use adds to a score at most: it decides between answers that are nearly as good, and no more."""

_HALF = 5
"""With so much use, half of it. That a pack or a search showed something is none: what is shown often would be shown
more often for that alone."""

_LOOKED_AT = 200
"""So many of the best hits are weighed: a tenth lifts none of the others onto a first page."""

_USED = (
    "SELECT memory_id, fetched + updated + 2 * cited FROM memories_memoryuse "
    f"WHERE memory_id IN {IDS} AND fetched + updated + cited > 0"
)


def use_weights(ids: Sequence[int]) -> dict[int, float]:
    """Return 1 to 1.1 for each of the best ids that was fetched, cited or updated, unless ``rank_by_use`` is off."""
    used = rows.fetch(_USED, [json.dumps(list(ids[:_LOOKED_AT]))])
    if not used or not project_settings().rank_by_use:
        return {}
    return {each: weight_of(points) for each, points in used}


def weight_of(points: int) -> float:
    """Return the weight for so much use: 1.05 at five points, never as much as 1.1."""
    return 1 + MOST * points / (points + _HALF)


class UseView(BaseModel):
    """What became of a memory, as every door shows it."""

    given: int = 0
    """Packs that told it."""
    found: int = 0
    """Times that a search or a query showed it."""
    fetched: int = 0
    """Times that it was asked for by id or name."""
    cited: int = 0
    """Memories, decisions, answers and summaries that name it."""
    updated: int = 0
    """Versions after its first."""
    ignored: bool = False
    """Whether packs told it and nothing else became of it."""
    last_given_at: datetime | None = None
    last_used_at: datetime | None = None
    """When it was last found, fetched, cited or updated."""


_NOTHING = UseView().model_dump(mode="json")


def uses_of(ids: Sequence[int]) -> dict[int, dict[str, Any]]:
    """Return what became of memories of the current store as JSON data, by id."""
    known = {use.memory_id: _shown(use) for use in MemoryUse.objects.filter(memory_id__in=list(ids))}
    return {each: known.get(each, _NOTHING) for each in ids}


def _shown(use: MemoryUse) -> dict[str, Any]:
    counts = {name.value: getattr(use, name.value) for name in Use}
    ignored = bool(counts.pop("given")) and not any(counts.values())
    times = {"last_given_at": use.last_given_at, "last_used_at": use.last_used_at}
    return UseView(given=use.given, **counts, ignored=ignored, **times).model_dump(mode="json")
