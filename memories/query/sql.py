"""Pieces of SQL that carry their parameters with them, so that none is bound to another's place."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from memoryhub.core.log.quarantine import OUTSIDE
from memoryhub.core.stores import rows


@dataclass(frozen=True, slots=True)
class Sql:
    """A piece of SQL with one parameter for each ``%s`` in it."""

    text: str
    parameters: tuple[Any, ...] = ()

    def fetch(self) -> list[tuple[Any, ...]]:
        """Run it in the current store and return its rows."""
        return rows.fetch(self.text, self.parameters)


def joined(template: str, *pieces: Sql) -> Sql:
    """Return ``template`` with each ``{}`` in it replaced by a piece, in order."""
    parameters = tuple(value for piece in pieces for value in piece.parameters)
    return Sql(template.format(*(piece.text for piece in pieces)), parameters)


def every(conditions: Iterable[Sql]) -> Sql:
    """Return the condition that all of ``conditions`` hold."""
    found = list(conditions)
    return joined(" AND ".join(["{}"] * len(found)), *found)


LIVE = f"m.deleted_at IS NULL AND m.review <> 'rejected' AND m.id {OUTSIDE}"
"""The condition that a memory is neither deleted nor rejected nor in quarantine."""
NOT_LIVE = (
    "m.id IN (SELECT id FROM memories_memory WHERE deleted_at IS NOT NULL UNION ALL "
    "SELECT id FROM memories_memory WHERE NOT (review = 'accepted') AND review = 'rejected')"
)
"""The condition that a memory is deleted or rejected; each of the two has an index of its own."""
HOLDS = "(m.review = 'accepted' OR m.accepted_version IS NOT NULL)"
"""The condition that a person stands behind a memory, or behind the version before one that waits."""
