"""The nearest scope wins: a memory hides those of its kind and name in wider scopes."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from memories.events import MEMORY_DELETED, MEMORY_RESTORED, MEMORY_REVISED
from memories.models import MemoryScope
from memories.scopes import NEAREST_FIRST, Level
from memories.sql import HOLDS, LIVE, Sql, every, joined
from memoryhub.core import log
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS, TEXTS, json_list, unindexed
from memoryhub.core.stores.store import Scope, StoreId, use_store

# Position after the end of every log
NEWEST = 2**62
# Kind, and title or topic
Name = tuple[str, str]

_TOUCHING = (MEMORY_REVISED.name, MEMORY_DELETED.name, MEMORY_RESTORED.name)


@dataclass(frozen=True, slots=True)
class Place:
    """A scope of a store, up to a position of its log."""

    store: StoreId
    scope: MemoryScope
    session_id: str
    # Entries created after this position of the log are ignored
    position: int = NEWEST

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


def store_key(store: StoreId) -> str:
    """Return the short name of a store in cursors; the same for every view of a past state."""
    return f"{store.scope}:{store.name}" if store.scope is Scope.ORG else store.scope.value


def positions_of(levels: Sequence[Level]) -> dict[str, int]:
    return {store_key(level.store): _end(level.store) for level in levels}


def _end(store: StoreId) -> int:
    with use_store(store):
        return log.head()[0]


def places_of(levels: Sequence[Level], positions: Mapping[str, int]) -> list[Place]:
    """Return every scope of ``levels``, nearest first; stores without a position are empty."""
    return list(_places(levels, positions))


def _places(levels: Sequence[Level], positions: Mapping[str, int]) -> Iterator[Place]:
    for level in levels:
        position = positions.get(store_key(level.store), 0)
        for scope in level.scopes if position else ():
            yield Place(level.store, scope, level.session_id, position)


def hidden_among(ids: Collection[int], level: Level, chain: Sequence[Level]) -> set[int]:
    """Return the entities of a level, among ``ids``, that a nearer memory hides.

    Call it in the caller's store: from another one the nearer stores may not be visible.

    Args:
        ids: of any entities of the level's store.
        level: one of the chain.
        chain: all visible levels, nearest first.
    """
    hidden: set[int] = set()
    nearer: list[Place] = []
    for place in (Place(other.store, scope, other.session_id) for other in chain for scope in other.scopes):
        if place.store == level.store and ids and nearer:
            among = Sql(f"m.id IN {IDS}", (json_list(ids),))
            with use_store(level.store):
                candidates = named(every([place.holds, among]))
            hidden |= hidden_by(nearer, candidates)
        nearer += occupied([place])
    return hidden


def occupied(places: Iterable[Place]) -> list[Place]:
    """Return the places without a session that has no memories, as most have none."""
    return [place for place in places if not _is_session(place) or _has_memories(place)]


def _has_memories(session: Place) -> bool:
    with use_store(session.store):
        return bool(joined("SELECT 1 FROM memories_memory m WHERE {} LIMIT 1", session.holds).fetch())


def named(condition: Sql) -> dict[int, set[Name]]:
    """Return the names of the current store's memories ``m`` that meet a condition."""
    select = "SELECT m.id, m.kind, m.title, m.topic_key FROM memories_memory m WHERE {}"
    return names_by_id(joined(select, condition))


def names_by_id(select: Sql) -> dict[int, set[Name]]:
    """Return the names of the memories that a query of id, kind, title and topic selects."""
    return {memory: _names(kind, title, topic) for memory, kind, title, topic in select.fetch()}


def _names(kind: str, title: str, topic: str | None) -> set[Name]:
    return {(kind, name) for name in (title, topic) if name}


def hidden_by(nearer: Sequence[Place], candidates: Mapping[int, Collection[Name]]) -> set[int]:
    """Return the candidates with a name that a live memory in one of the ``nearer`` places has."""
    nearer_names = _names_at(nearer, {name for names in candidates.values() for name in names}) if candidates else set()
    return (
        {memory for memory, names in candidates.items() if not nearer_names.isdisjoint(names)}
        if nearer_names
        else set()
    )


def _names_at(places: Iterable[Place], names: set[Name]) -> set[Name]:
    nearer_names: set[Name] = set()
    for place in places:
        with use_store(place.store):
            nearer_names |= _names_in(place, json_list(sorted({name for _, name in names})))
    return nearer_names & names


# Two queries, because each column has its own index
def _names_in(place: Place, names: str) -> set[Name]:
    touched = _touched_since(place.position) if place.position < NEWEST else {}
    present = every([Sql(f"{LIVE} AND {HOLDS} AND m.id NOT IN {IDS}", (json_list(touched),)), place.holds])
    titled = Sql(f"m.title IN {TEXTS}", (names,))
    about = Sql(f"m.topic_key IN {TEXTS} AND {_indexed_topic(place)}", (names,))
    matches = (*named(every([titled, present])).values(), *named(every([about, present])).values())
    return set().union(*matches) | (_earlier(place, touched) if touched else set())


# Written exactly as in the partial index of topics, so that SQLite uses it
def _indexed_topic(place: Place) -> str:
    condition = "m.scope = 'session'" if _is_session(place) else "NOT (m.scope = 'session')"
    return f"m.deleted_at IS NULL AND {condition}"


# Later pages of a query see the names as of its first page: a nearer memory that is written, renamed or restored
# meanwhile hides nothing that the first page counted. These are the memories revised, deleted or restored since a
# position, each with the type of its first deletion or restore.
def _touched_since(position: int) -> dict[int, str]:
    events = rows.fetch(
        "SELECT stream_id, event_type FROM raw_events WHERE event_type IN (%s, %s, %s) AND position > %s "
        "ORDER BY position",
        [*_TOUCHING, position],
    )
    touched: dict[int, str] = {}
    for stream, event_type in events:
        memory_id = int(stream.partition(":")[2])
        first = touched.get(memory_id, "")
        touched[memory_id] = first or ("" if event_type == MEMORY_REVISED.name else event_type)
    return touched


# Names that these memories had at the position, if they were live then
def _earlier(place: Place, touched: Mapping[int, str]) -> set[Name]:
    versions = rows.fetch(
        "SELECT m.id, m.kind, m.deleted_at IS NOT NULL, m.session_id, e.payload_json FROM memories_memory m "
        "JOIN raw_events e ON e.position = (SELECT max(v.id) FROM memories_memoryversion v "
        f"WHERE v.memory_id = m.id AND v.id <= %s) WHERE m.id IN {IDS}",
        [place.position, json_list(touched)],
    )
    names: set[Name] = set()
    for memory_id, kind, is_deleted, session_id, payload_json in versions:
        payload = json.loads(payload_json or "{}")
        of_session = payload.get("scope") == MemoryScope.SESSION
        is_here = of_session and session_id == place.session_id if _is_session(place) else not of_session
        if is_here and not _was_deleted(touched[memory_id], is_deleted=bool(is_deleted)):
            names |= _names(kind, payload.get("title", ""), payload.get("topic_key"))
    return names


def _is_session(place: Place) -> bool:
    return place.scope is MemoryScope.SESSION


def _was_deleted(first: str, *, is_deleted: bool) -> bool:
    # A first deletion implies that it was live before, a first restore that it was deleted
    return first == MEMORY_RESTORED.name if first else is_deleted
