"""What is known against entries of the current store, compared with the caller's working tree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from django.db.models import Q

from memories.models import Amendment, CodeAnchor, Memory
from memories.validity.amendments import Pair, amendment_marks, stored_pairs
from memories.validity.branches import branch_marks
from memories.validity.checks import check_marks
from memories.validity.freshness import anchor_marks
from memories.validity.marks import Mark, MarkKind
from memories.validity.models import CheckOutcome, CheckState, Provenance
from memories.validity.trust import may_be_lesser, trust_marks
from memoryhub.core.stores import rows
from sessions_app.selectors import caller_tree


def marks_of(ids: Sequence[int], pairs: Sequence[Pair] | None = None) -> dict[int, list[Mark]]:
    """Map entries to what is known against them; without those that nothing is known against.

    Args:
        ids: the entries.
        pairs: which of them newer ones amend or contradict; looked up if it is None.
    """
    if pairs is None:
        marks, pairs = rows.together(marks_apart.steps(ids), stored_pairs.steps(ids))
    else:
        marks = marks_apart(ids)
    return joined_marks(marks, amendment_marks(ids, pairs))


class MarksApart(NamedTuple):
    """What is known against entries, other than by newer ones, in the order of answers."""

    of_anchors: Mapping[int, Mark]
    of_branches: Mapping[int, Mark]
    of_trust: Mapping[int, Mark]
    of_checks: Mapping[int, Mark]


@rows.InSteps
def marks_apart(ids: Sequence[int]) -> rows.Steps[MarksApart]:
    """Return what is known against entries, other than by newer ones."""
    tree, of_trust, of_checks = yield from rows.side_by_side(
        caller_tree.steps(), trust_marks.steps(ids), check_marks.steps(ids)
    )
    on_branches = branch_marks(ids, tree)
    # That a branch is not merged explains why its code is not as it was
    unexplained = [key for key in ids if key not in on_branches or not on_branches[key].withheld]
    return MarksApart(anchor_marks(unexplained, tree), on_branches, of_trust, of_checks)


def joined_marks(apart: MarksApart, of_amendments: Mapping[int, Mark]) -> dict[int, list[Mark]]:
    """Map entries to all marks that they have."""
    marks: dict[int, list[Mark]] = {}
    for marks_of_kind in (*apart[:2], of_amendments, *apart[2:]):
        for entity_id, mark in marks_of_kind.items():
            marks.setdefault(entity_id, []).append(mark)
    return marks


def ids_with_mark(kind: str) -> list[int]:
    """Return the live memories of the current store that have a mark of this kind."""
    if kind not in set(MarkKind):
        return []
    # Not of all memories, which may be a million
    may_have_it = Memory.objects.live().filter(_may_have(MarkKind(kind))).values_list("id", flat=True)
    return [entry for entry, marks in marks_of(list(may_have_it)).items() if any(mark.kind == kind for mark in marks)]


# A condition that holds for all memories with a mark
def _may_have(kind: MarkKind) -> Q:
    if kind is MarkKind.ORIGIN:
        return may_be_lesser()
    if kind in (MarkKind.AMENDED, MarkKind.CONTRADICTED):
        return Q(id__in=Amendment.objects.values("older_id")) | Q(id__in=Amendment.objects.values("newer_id"))
    if kind is MarkKind.FAILED:
        return Q(id__in=CheckState.objects.filter(outcome=CheckOutcome.FAILED).values("entity_id"))
    if kind is MarkKind.BRANCH:
        return Q(id__in=Provenance.objects.values("id"))
    return Q(id__in=CodeAnchor.objects.values("entity_id"))
