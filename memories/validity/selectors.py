"""What is known against entries of the current store, compared with the caller's working tree."""

from __future__ import annotations

from collections.abc import Sequence

from memories.models import Memory
from memories.validity.amendments import Pair, amendment_marks
from memories.validity.branches import branch_marks
from memories.validity.checks import check_marks
from memories.validity.freshness import anchor_marks
from memories.validity.marks import Mark
from memories.validity.trust import trust_marks
from sessions_app.selectors import caller_tree


def marks_of(ids: Sequence[int], pairs: Sequence[Pair] | None = None) -> dict[int, list[Mark]]:
    """Map entries to what is known against them; without those that nothing is known against.

    Args:
        ids: the entries.
        pairs: which of them newer ones amend or contradict; looked up if it is None.
    """
    tree = caller_tree()
    marks: dict[int, list[Mark]] = {}
    on_branches = branch_marks(ids, tree)
    # That a branch is not merged explains why its code is not as it was
    unexplained = [key for key in ids if key not in on_branches or not on_branches[key].withheld]
    kinds = (
        anchor_marks(unexplained, tree),
        on_branches,
        amendment_marks(ids, pairs),
        trust_marks(ids),
        check_marks(ids),
    )
    for marks_of_kind in kinds:
        for entity_id, mark in marks_of_kind.items():
            marks.setdefault(entity_id, []).append(mark)
    return marks


def ids_with_mark(kind: str) -> list[int]:
    """Return the live memories of the current store that have a mark of this kind."""
    live = list(Memory.objects.live().values_list("id", flat=True))
    return [memory_id for memory_id, marks in marks_of(live).items() if any(mark.kind == kind for mark in marks)]
