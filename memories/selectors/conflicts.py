"""Conflicts: which there are, and which memories have one."""

from __future__ import annotations

from collections.abc import Sequence

from memories.models import Conflict
from memoryhub.core import rows
from memoryhub.core.errors import NotFound


def find_conflict(conflict_id: int) -> Conflict:
    """Return the conflict, settled or not.

    Raises:
        NotFound: there is none of that id.
    """
    conflict: Conflict | None = Conflict.objects.select_related("memory").filter(id=conflict_id).first()
    if conflict is None:
        raise NotFound(f"there is no conflict #{conflict_id} here; memory_conflicts lists those there are")
    return conflict


def open_conflicts(memory_ids: Sequence[int]) -> dict[int, list[int]]:
    """Return the ids of the unsettled conflicts of each memory that has one."""
    if not memory_ids:
        return {}
    found = rows.fetch(
        "SELECT memory_id, id FROM memories_conflict WHERE resolved_at IS NULL AND memory_id IN "
        f"({', '.join(['%s'] * len(memory_ids))}) ORDER BY id",
        list(memory_ids),
    )
    grouped: dict[int, list[int]] = {}
    for memory_id, conflict_id in found:
        grouped.setdefault(memory_id, []).append(conflict_id)
    return grouped
