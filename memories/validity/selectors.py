"""What is known against entries of the current store, compared with the caller's working tree."""

from __future__ import annotations

from collections.abc import Sequence

from memories.validity.freshness import anchor_marks
from memories.validity.marks import Mark
from sessions_app.selectors import caller_tree


def marks_of(ids: Sequence[int]) -> dict[int, list[Mark]]:
    """Map entries to what is known against them; without those that nothing is known against."""
    marks: dict[int, list[Mark]] = {entity_id: [] for entity_id in ids}
    for entity_id, mark in anchor_marks(ids, caller_tree()).items():
        marks[entity_id].append(mark)
    return {entity_id: entity_marks for entity_id, entity_marks in marks.items() if entity_marks}
