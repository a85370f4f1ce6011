"""Map scopes to stores, list the visible ones, and hide memories that a nearer scope overrides."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from memories.events import MEMORY_DELETED, MEMORY_RESTORED, MEMORY_REVISED, MEMORY_WRITTEN
from memories.models import MemoryScope
from memoryhub.core import log
from memoryhub.core.backends.selected import stores
from memoryhub.core.errors import Invalid, NotFound
from memoryhub.core.log.quarantine import OUTSIDE
from memoryhub.core.origin import current_origin, use_origin
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS, TEXTS, json_list, unindexed
from memoryhub.core.stores.store import GLOBAL_STORE, Scope, StoreId, current_store, org_store, use_store
from sessions_app.selectors import org_of_project
from sessions_app.services.turns import require_turn

# See decision 14
NEAREST_FIRST = (MemoryScope.SESSION, MemoryScope.PROJECT, MemoryScope.ORG, MemoryScope.GLOBAL)
_SCOPE_OF_STORE = {
    Scope.PROJECT: MemoryScope.PROJECT,
    Scope.VIEW: MemoryScope.PROJECT,
    Scope.ORG: MemoryScope.ORG,
    Scope.GLOBAL: MemoryScope.GLOBAL,
}


@dataclass(frozen=True, slots=True)
class Level:
    store: StoreId
    # Nearest first; a project's store has the session and the project
    scopes: tuple[MemoryScope, ...]
    session_id: str = ""

    @property
    def rank(self) -> int:
        return NEAREST_FIRST.index(self.scopes[-1])

    def restrict(self, memory_id: str) -> tuple[str, list[Any]]:
        """Return SQL that restricts a memory id to the visible ones, with parameters; "" if all are."""
        # Few memories belong to a session, and a partial index contains just those
        of_sessions = "SELECT id FROM memories_memory WHERE scope = 'session'"
        if self.scopes == (MemoryScope.SESSION,):
            return f"{memory_id} IN ({of_sessions} AND session_id = %s)", [self.session_id]
        if MemoryScope.SESSION in self.scopes:
            return f"{memory_id} NOT IN ({of_sessions} AND session_id <> %s)", [self.session_id]
        if MemoryScope.PROJECT in self.scopes:
            return f"{memory_id} NOT IN ({of_sessions})", []
        return "", []


def own_scope() -> MemoryScope:
    return _SCOPE_OF_STORE[current_store().scope]


@rows.InSteps
def levels(
    scope: MemoryScope | None = None, *, inherit: bool = True, session_id: str = "", scope_id: str = ""
) -> rows.Steps[list[Level]]:
    """Return the visible stores, nearest first.

    Args:
        scope: start there instead of at the nearest.
        inherit: include the wider ones.
        session_id: session whose memories are visible; default: the caller's.
        scope_id: the id of that scope; it must be the one bound here.

    Raises:
        Invalid: ``scope`` is nearer than the current store, or ``scope_id`` names another project or organisation.
    """
    session = session_id or current_origin().session_id
    if scope is MemoryScope.SESSION and scope_id:
        session = scope_id
    chain = _chain(session, (yield from _org_here.steps()))
    if scope is None:
        return _joined([level for level in chain if inherit or level.store == current_store()])
    at_scope = [level for level in chain if level.scopes[0] is scope]
    visible = at_scope
    if inherit:
        visible = [level for level in chain if level.rank >= NEAREST_FIRST.index(scope)]
    if not at_scope and scope not in (MemoryScope.ORG, MemoryScope.GLOBAL):
        raise Invalid(f"no {scope} is open here; use scope {own_scope()}, or start a session first")
    _check_named(scope, scope_id, chain)
    return _joined(visible)


def _chain(session_id: str, org: StoreId | None) -> list[Level]:
    here = current_store()
    chain: list[Level] = []
    if own_scope() is MemoryScope.PROJECT:
        if session_id:
            chain.append(Level(here, (MemoryScope.SESSION,), session_id))
        chain.append(Level(here, (MemoryScope.PROJECT,)))
    if here.scope is Scope.VIEW:
        return chain  # a position of one log means nothing in another
    if org and stores.exists(org):
        chain.append(Level(org, (MemoryScope.ORG,)))
    if stores.exists(GLOBAL_STORE):
        chain.append(Level(GLOBAL_STORE, (MemoryScope.GLOBAL,)))
    return chain


@rows.InSteps
def _org_here() -> rows.Steps[StoreId | None]:
    here = current_store()
    if here.scope is Scope.ORG:
        return here
    if here.scope is not Scope.PROJECT:
        return None
    name = yield from org_of_project.steps()
    return org_store(name) if name else None


# The session and the project share a store, so one query serves both
def _joined(chain: list[Level]) -> list[Level]:
    if len(chain) > 1 and chain[0].store == chain[1].store:
        both = Level(chain[0].store, (*chain[0].scopes, *chain[1].scopes), chain[0].session_id)
        return [both, *chain[2:]]
    return chain


def _check_named(scope: MemoryScope, scope_id: str, chain: list[Level]) -> None:
    if not scope_id or scope in (MemoryScope.SESSION, MemoryScope.GLOBAL):
        return
    names = [level.store.name for level in chain if level.scopes[0] is scope]
    if scope_id not in names:
        bound = ", ".join(names) or "none"
        raise Invalid(f"this server is bound to {scope} {bound}; leave the id out, or name that one")


@contextmanager
def writing(scope: MemoryScope) -> Iterator[MemoryScope]:
    """Make the store of ``scope`` current; yield the scope of what is written there.

    Raises:
        Invalid: the scope cannot be written from here; the message has the next step.
    """
    target, target_scope = _target(scope)
    if target == current_store():
        yield target_scope
        return
    # The turn is checked in the store of the caller, before the other store becomes current
    origin = require_turn(MEMORY_WRITTEN, current_origin())
    elsewhere = use_origin(session_id=origin.session_id, turn_id=origin.turn_id, ack_token="")
    with use_store(target, create=target_scope is MemoryScope.GLOBAL), elsewhere:
        yield target_scope


@contextmanager
def reading(scope: MemoryScope) -> Iterator[None]:
    """Make the store of ``scope`` current for reading.

    Raises:
        NotFound: nothing has been written to it.
        Invalid: as ``writing``.
    """
    target, _ = _target(scope, needs_session=False)
    if target == current_store():
        yield
        return
    if not stores.exists(target):
        raise NotFound(f"the {scope} scope is empty; memory_write with scope={scope} creates it")
    with use_store(target):
        yield


def _target(scope: MemoryScope, *, needs_session: bool = True) -> tuple[StoreId, MemoryScope]:
    here = current_store()
    here_scope = _SCOPE_OF_STORE[here.scope]
    if scope is MemoryScope.GLOBAL:
        return GLOBAL_STORE, scope
    if scope is MemoryScope.ORG:
        org = _org_here()
        if org is None:
            raise Invalid(
                f"{here.name!r} belongs to no organisation; set one with project_create (org, if_exists=update), "
                "or use scope project or global"
            )
        return org, scope
    if here_scope is not MemoryScope.PROJECT:
        return here, here_scope
    if scope is MemoryScope.SESSION and needs_session and not current_origin().session_id:
        raise Invalid("scope session needs a session; start one with session_start, or use scope project")
    return here, scope


# Position after the end of every log
NEWEST = 2**62
# Kind, and title or topic
Name = tuple[str, str]


@dataclass(frozen=True, slots=True)
class ScopePlace:
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
    positions = {}
    for level in levels:
        with use_store(level.store):
            positions[store_key(level.store)] = log.head()[0]
    return positions


def places_of(levels: Sequence[Level], positions: Mapping[str, int]) -> list[ScopePlace]:
    """Return every scope of ``levels``, nearest first; stores without a position are empty."""
    places = []
    for level in levels:
        position = positions.get(store_key(level.store))
        if position:
            places += [ScopePlace(level.store, scope, level.session_id, position) for scope in level.scopes]
    return places


def hidden_among(ids: Collection[int], level: Level, chain: Sequence[Level]) -> set[int]:
    """Return the entities of a level, among ``ids``, that a nearer memory hides.

    Call it in the caller's store: from another one the nearer stores may not be visible.

    Args:
        ids: of any entities of the level's store.
        level: one of the chain.
        chain: all visible levels, nearest first.
    """
    hidden: set[int] = set()
    nearer: list[ScopePlace] = []
    for other in chain:
        for scope in other.scopes:
            place = ScopePlace(other.store, scope, other.session_id)
            if place.store == level.store and ids and nearer:
                among = Sql(f"m.id IN {IDS}", (json_list(ids),))
                with use_store(level.store):
                    candidates = named(every([place.holds, among]))
                hidden |= hidden_by(nearer, candidates)
            nearer += occupied([place])
    return hidden


def occupied(places: Iterable[ScopePlace]) -> list[ScopePlace]:
    """Return the places without a session that has no memories, as most have none."""
    occupied_places = []
    for place in places:
        if _is_session(place):
            with use_store(place.store):
                if not joined("SELECT 1 FROM memories_memory m WHERE {} LIMIT 1", place.holds).fetch():
                    continue
        occupied_places.append(place)
    return occupied_places


def named(condition: Sql) -> dict[int, set[Name]]:
    """Return the names of the current store's memories ``m`` that meet a condition."""
    select = "SELECT m.id, m.kind, m.title, m.topic_key FROM memories_memory m WHERE {}"
    return names_by_id(joined(select, condition))


def names_by_id(select: Sql) -> dict[int, set[Name]]:
    """Return the names of the memories that a query of id, kind, title and topic selects."""
    return {memory: _names(kind, title, topic) for memory, kind, title, topic in select.fetch()}


def _names(kind: str, title: str, topic: str | None) -> set[Name]:
    return {(kind, name) for name in (title, topic) if name}


def hidden_by(nearer: Sequence[ScopePlace], candidates: Mapping[int, Collection[Name]]) -> set[int]:
    """Return the candidates with a name that a live memory in one of the ``nearer`` places has."""
    if not candidates:
        return set()
    nearer_names: set[Name] = set()
    texts = json_list(sorted({name for _, name in set().union(*candidates.values())}))
    for place in nearer:
        with use_store(place.store):
            nearer_names |= _names_in(place, texts)
    return {memory for memory, names in candidates.items() if not nearer_names.isdisjoint(names)}


# Two queries, because each column has its own index
def _names_in(place: ScopePlace, names: str) -> set[Name]:
    touched = _touched_since(place.position) if place.position < NEWEST else {}
    present = every([Sql(f"{LIVE} AND {HOLDS} AND m.id NOT IN {IDS}", (json_list(touched),)), place.holds])
    titled = Sql(f"m.title IN {TEXTS}", (names,))
    # The scope is written exactly as in the partial index of topics, so that SQLite uses it
    scope = "m.scope = 'session'" if _is_session(place) else "NOT (m.scope = 'session')"
    about = Sql(f"m.topic_key IN {TEXTS} AND m.deleted_at IS NULL AND {scope}", (names,))
    matching = set().union(*named(every([titled, present])).values(), *named(every([about, present])).values())
    return matching | _earlier_names(place, touched) if touched else matching


# Later pages of a query see the names as of its first page: a nearer memory that is written, renamed or restored
# meanwhile hides nothing that the first page counted. These are the memories revised, deleted or restored since a
# position, each with the type of its first deletion or restore.
def _touched_since(position: int) -> dict[int, str]:
    events = log.events().of_type(MEMORY_REVISED, MEMORY_DELETED, MEMORY_RESTORED).window(after=position)
    touched: dict[int, str] = {}
    for stream, event_type in events.values_list("stream_id", "event_type"):
        memory_id = int(stream.partition(":")[2])
        touched.setdefault(memory_id, "")
        if not touched[memory_id] and event_type != MEMORY_REVISED.name:
            touched[memory_id] = event_type
    return touched


# Names that these memories had at the position, if they were live then
def _earlier_names(place: ScopePlace, touched: Mapping[int, str]) -> set[Name]:
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
        # A first deletion implies that it was live before, a first restore that it was deleted
        was_deleted = is_deleted
        if touched[memory_id]:
            was_deleted = touched[memory_id] == MEMORY_RESTORED.name
        is_here = of_session == _is_session(place) and (not of_session or session_id == place.session_id)
        if is_here and not was_deleted:
            names |= _names(kind, payload.get("title", ""), payload.get("topic_key"))
    return names


def _is_session(place: ScopePlace) -> bool:
    return place.scope is MemoryScope.SESSION


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
    parts = list(conditions)
    return joined(" AND ".join(["{}"] * len(parts)), *parts)


# Neither deleted nor rejected nor in quarantine
LIVE = f"m.deleted_at IS NULL AND m.review <> 'rejected' AND m.id {OUTSIDE}"
# Deleted or rejected; written as two subqueries because each has its own index
NOT_LIVE = (
    "m.id IN (SELECT id FROM memories_memory WHERE deleted_at IS NOT NULL UNION ALL "
    "SELECT id FROM memories_memory WHERE NOT (review = 'accepted') AND review = 'rejected')"
)
# Accepted, or with an accepted version while a later one is proposed
HOLDS = "(m.review = 'accepted' OR m.accepted_version IS NOT NULL)"
