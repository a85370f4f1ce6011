"""Which memories are superseded. Searches lower and mark them, and context packs leave them out (decision 49)."""

from __future__ import annotations

from memories.models import EndType, RelationType
from memoryhub.core.log.quarantine import OUTSIDE

# Score factor of a superseded entry
SUPERSEDED_WEIGHT = 0.3

# SQL predicate on `r`, a relation: it supersedes a memory. Only live, accepted successors count
SUPERSEDES = (
    f"r.relation = '{RelationType.SUPERSEDES.value}' AND r.target_type = '{EndType.MEMORY.value}' "
    f"AND r.source_id {OUTSIDE} AND (r.source_type <> '{EndType.MEMORY.value}' OR EXISTS (SELECT 1 "
    "FROM memories_memory AS successor WHERE successor.id = r.source_id AND successor.deleted_at IS NULL "
    "AND (successor.review = 'accepted' OR successor.accepted_version IS NOT NULL)))"
)
_predicates = [f"EXISTS (SELECT 1 FROM memories_relation r WHERE r.target_id = m.id AND {SUPERSEDES})"]


def define_superseded(predicate: str) -> None:
    """Register an SQL predicate on ``m``, a memory, that is true if something else replaces it."""
    _predicates.append(predicate)


def is_superseded() -> str:
    """Return the SQL predicate on ``m``, a memory, that is true if it is superseded."""
    return f"({' OR '.join(f'({predicate})' for predicate in _predicates)})"
