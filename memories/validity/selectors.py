"""What is known against entries of the current store, compared with the caller's working tree."""

from __future__ import annotations

from collections.abc import Sequence

from memories.validity.branches import branch_marks
from memories.validity.freshness import anchor_marks
from memories.validity.marks import Mark
from memories.validity.trust import trust_marks
from sessions_app.selectors import caller_tree


def marks_of(ids: Sequence[int]) -> dict[int, list[Mark]]:
    """Map entries to what is known against them; without those that nothing is known against."""
    tree = caller_tree()
    marks: dict[int, list[Mark]] = {}
    for marks_of_kind in (anchor_marks(ids, tree), branch_marks(ids, tree), trust_marks(ids)):
        for entity_id, mark in marks_of_kind.items():
            marks.setdefault(entity_id, []).append(mark)
    return marks
