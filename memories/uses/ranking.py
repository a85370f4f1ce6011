"""A quiet weight of searches: what was worth coming back to counts a little more."""

from __future__ import annotations

import json
from collections.abc import Sequence

from memoryhub.core import rows
from memoryhub.core.dialect import IDS
from sessions_app.settings import project_settings

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
