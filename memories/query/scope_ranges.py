"""Where a query looks: the scopes that hold here, each with how much of its store's log counts."""

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

PROXIMITY = dict(zip(NEAREST_FIRST, (1.0, 2 / 3, 1 / 3, 0.0), strict=True))
"""How near each scope is, 1 to 0."""


@dataclass(frozen=True, slots=True)
class Place:
    """One scope that holds here."""

    store: StoreId
    scope: MemoryScope
    session_id: str
    position: int
    """Of the store's log: what was created after it is not there yet."""

    @property
    def rank(self) -> int:
        """0 for the nearest scope there is, 3 for the widest."""
        return NEAREST_FIRST.index(self.scope)

    @property
    def holds(self) -> Sql:
        """The condition on a memory ``m`` that it holds in this scope, as far as the log counts."""
        up_to = Sql(f"{unindexed('m.id')} <= %s", (self.position,))
        if self.scope is MemoryScope.SESSION:
            text = f"m.scope = 'session' AND m.session_id = %s AND {up_to.text}"
            return Sql(text, (self.session_id, self.position))
        return Sql(f"m.scope <> 'session' AND {up_to.text}", up_to.parameters)


def levels_of(scope: QueryScope | None) -> list[scopes.Level]:
    """Return the stores that a query asks, nearest first.

    Raises:
        Invalid: the scope is not open here, or its id is not the one that holds here.
    """
    if scope is None:
        return scopes.levels()
    here = scope.type is MemoryScope.PROJECT and scope.id == viewed_store().name
    return scopes.levels(scope.type, inherit=scope.inherit, scope_id="" if here else scope.id)


def store_key(store: StoreId) -> str:
    """Return the name of a store in a cursor: short, and the same for the next view of a past moment."""
    return f"{store.scope}:{store.name}" if store.scope is Scope.ORG else store.scope.value


def positions_of(levels: list[scopes.Level]) -> dict[str, int]:
    """Return where the log of each store ends now."""
    return {store_key(level.store): _end(level.store) for level in levels}


def _end(store: StoreId) -> int:
    with use_store(store):
        return log.head()[0]


def places_of(levels: list[scopes.Level], positions: dict[str, int]) -> list[Place]:
    """Return every scope of ``levels``, nearest first; a store without a position holds nothing yet."""
    return list(_places(levels, positions))


def _places(levels: list[scopes.Level], positions: dict[str, int]) -> Iterator[Place]:
    for level in levels:
        position = positions.get(store_key(level.store), 0)
        for scope in level.scopes if position else ():
            yield Place(level.store, scope, level.session_id, position)
