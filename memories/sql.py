from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from memoryhub.core.log.quarantine import OUTSIDE
from memoryhub.core.stores import rows


@dataclass(frozen=True, slots=True)
class Sql:
    """SQL with one parameter for each ``%s``."""

    text: str
    parameters: tuple[Any, ...] = ()

    def fetch(self) -> list[tuple[Any, ...]]:
        return rows.fetch(self.text, self.parameters)


def joined(template: str, *pieces: Sql) -> Sql:
    """Replace each ``{}`` of the template by a fragment, in order."""
    parameters = tuple(value for piece in pieces for value in piece.parameters)
    return Sql(template.format(*(piece.text for piece in pieces)), parameters)


def every(conditions: Iterable[Sql]) -> Sql:
    """AND of all conditions."""
    found = list(conditions)
    return joined(" AND ".join(["{}"] * len(found)), *found)


# Neither deleted nor rejected nor in quarantine
LIVE = f"m.deleted_at IS NULL AND m.review <> 'rejected' AND m.id {OUTSIDE}"
# Deleted or rejected; written as two subqueries because each has its own index
NOT_LIVE = (
    "m.id IN (SELECT id FROM memories_memory WHERE deleted_at IS NOT NULL UNION ALL "
    "SELECT id FROM memories_memory WHERE NOT (review = 'accepted') AND review = 'rejected')"
)
# Accepted, or with an accepted version while a later one is proposed
HOLDS = "(m.review = 'accepted' OR m.accepted_version IS NOT NULL)"
