"""The scopes that a query covers, each up to a position of its log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from memories import scopes
from memories.models import MemoryScope
from memories.query.sql import Sql
from memories.schemas.query import QueryScope
from memories.scopes import NEAREST_FIRST
from memoryhub.core import log
from memoryhub.core.log.event_view import viewed_store
from memoryhub.core.stores.dialect import unindexed
from memoryhub.core.stores.store import Scope, StoreId, use_store

# The scope part of the score
PROXIMITY = dict(zip(NEAREST_FIRST, (1.0, 2 / 3, 1 / 3, 0.0), strict=True))


@dataclass(frozen=True, slots=True)
class Place:
    store: StoreId
    scope: MemoryScope
    session_id: str
    # Entries created after this position of the log are ignored
    position: int

    @property
    def rank(self) -> int:
        """0 for the nearest scope, 3 for the widest."""
        return NEAREST_FIRST.index(self.scope)

    @property
    def holds(self) -> Sql:
        """SQL condition: memory ``m`` belongs to this scope, up to the position."""
        up_to = Sql(f"{unindexed('m.id')} <= %s", (self.position,))
        if self.scope is MemoryScope.SESSION:
            text = f"m.scope = 'session' AND m.session_id = %s AND {up_to.text}"
            return Sql(text, (self.session_id, self.position))
        return Sql(f"m.scope <> 'session' AND {up_to.text}", up_to.parameters)


def levels_of(scope: QueryScope | None) -> list[scopes.Level]:
    """Return the stores to query, nearest first.

    Raises:
        Invalid: the scope is not available here, or its id is not the one bound here.
    """
    if scope is None:
        return scopes.levels()
    here = scope.type is MemoryScope.PROJECT and scope.id == viewed_store().name
    return scopes.levels(scope.type, inherit=scope.inherit, scope_id="" if here else scope.id)


def store_key(store: StoreId) -> str:
    """Return the short name of a store in cursors; the same for every view of a past state."""
    return f"{store.scope}:{store.name}" if store.scope is Scope.ORG else store.scope.value


def positions_of(levels: list[scopes.Level]) -> dict[str, int]:
    return {store_key(level.store): _end(level.store) for level in levels}


def _end(store: StoreId) -> int:
    with use_store(store):
        return log.head()[0]


def places_of(levels: list[scopes.Level], positions: dict[str, int]) -> list[Place]:
    """Return every scope of ``levels``, nearest first; stores without a position are empty."""
    return list(_places(levels, positions))


def _places(levels: list[scopes.Level], positions: dict[str, int]) -> Iterator[Place]:
    for level in levels:
        position = positions.get(store_key(level.store), 0)
        for scope in level.scopes if position else ():
            yield Place(level.store, scope, level.session_id, position)
