"""Which memories are superseded. Searches lower and mark them, and context packs leave them out (decision 49)."""

from __future__ import annotations

import json
from collections.abc import Iterable

from memories.models import EndType, RelationType
from memoryhub.core.log.quarantine import OUTSIDE
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS

# Score factor of a superseded entry
SUPERSEDED_WEIGHT = 0.3

# SQL predicates on `r`, a relation, by the type of its source: that supersedes a memory. Only live, accepted
# memories do
_successors = {
    EndType.MEMORY.value: "EXISTS (SELECT 1 FROM memories_memory AS successor WHERE successor.id = r.source_id "
    "AND successor.deleted_at IS NULL AND (successor.review = 'accepted' OR successor.accepted_version IS NOT NULL))"
}
_predicates: list[str] = []


def define_successor(source_type: EndType, successor: str, superseded: str) -> None:
    """Register a type of entity that supersedes memories.

    Args:
        source_type: the type.
        successor: SQL predicate on ``r``, a relation whose source has that type: it supersedes its target.
        superseded: SQL predicate on ``m``, a memory: an entity of the type replaces it without a relation.
    """
    _successors[source_type.value] = successor
    _predicates.append(superseded)


def supersedes() -> str:
    """Return the SQL predicate on ``r``, a relation, that is true if it supersedes a memory now."""
    conditions = "".join(f" AND (r.source_type <> '{name}' OR {sql})" for name, sql in _successors.items())
    return (
        f"r.relation = '{RelationType.SUPERSEDES.value}' AND r.target_type = '{EndType.MEMORY.value}' "
        f"AND r.source_id {OUTSIDE}{conditions}"
    )


def is_superseded() -> str:
    """Return the SQL predicate on ``m``, a memory, that is true if it is superseded."""
    related = f"EXISTS (SELECT 1 FROM memories_relation r WHERE r.target_id = m.id AND {supersedes()})"
    predicates = " OR ".join(f"({predicate})" for predicate in (related, *_predicates))
    return f"({predicates})"


@rows.InSteps
def superseded_by(ids: Iterable[int]) -> rows.Steps[dict[int, list[int]]]:
    """Map superseded memories to what supersedes them; only live, accepted successors count."""
    target_ids = list(ids)
    if not target_ids:
        return {}
    sql = (
        "SELECT r.target_id, r.source_id FROM memories_relation r "
        f"WHERE r.target_id IN {IDS} AND {supersedes()} ORDER BY r.id"
    )
    (pairs,) = yield [(sql, [json.dumps(target_ids)])]
    grouped: dict[int, list[int]] = {}
    for superseded, successor in pairs:
        grouped.setdefault(superseded, []).append(successor)
    return grouped
