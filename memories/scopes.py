"""Scopes over stores: which store a scope is, and which scopes hold where the caller stands.

A store is a project's, an organisation's or the global one; a session's memories are in its project's store. Seen
from a project, its session, the project, its organisation and the global scope hold, and the nearest wins.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from memories.events import MEMORY_WRITTEN
from memories.models import MemoryScope
from memoryhub.core.errors import Invalid, NotFound
from memoryhub.core.origin import current_origin, use_origin
from memoryhub.core.stores.store import GLOBAL_STORE, Scope, StoreId, current_store, org_store, use_store
from sessions_app.gatekeeper import require_turn
from sessions_app.selectors import org_of_project

NEAREST_FIRST = (MemoryScope.SESSION, MemoryScope.PROJECT, MemoryScope.ORG, MemoryScope.GLOBAL)
_OWN = {
    Scope.PROJECT: MemoryScope.PROJECT,
    Scope.VIEW: MemoryScope.PROJECT,
    Scope.ORG: MemoryScope.ORG,
    Scope.GLOBAL: MemoryScope.GLOBAL,
}


@dataclass(frozen=True, slots=True)
class Level:
    """One store that holds here, and which of its memories do."""

    store: StoreId
    scopes: tuple[MemoryScope, ...]
    """Nearest first; of a project's store, the session and the project."""
    session_id: str = ""

    def restrict(self, memory_id: str) -> tuple[str, list[Any]]:
        """Return the SQL condition on a memory's id that it holds here, with its parameters; "" where all do.

        Few memories are of a session, and an index has just those.
        """
        if MemoryScope.SESSION not in self.scopes:
            return (f"{memory_id} NOT IN ({_OF_SESSIONS})", []) if MemoryScope.PROJECT in self.scopes else ("", [])
        if len(self.scopes) == 1:
            return f"{memory_id} IN ({_OF_SESSIONS} AND session_id = %s)", [self.session_id]
        return f"{memory_id} NOT IN ({_OF_SESSIONS} AND session_id <> %s)", [self.session_id]


_OF_SESSIONS = "SELECT id FROM memories_memory WHERE scope = 'session'"


def own_scope() -> MemoryScope:
    """Return the scope that the current store is for."""
    return _OWN[current_store().scope]


def levels(
    scope: MemoryScope | None = None, *, inherit: bool = True, session_id: str = "", scope_id: str = ""
) -> list[Level]:
    """Return the stores that hold here, nearest first.

    Args:
        scope: begin there instead of at the nearest.
        inherit: go on to the wider ones.
        session_id: whose session's memories hold; default: the caller's.
        scope_id: the id of that scope, if the caller names it: it must be the one that holds here.

    Raises:
        Invalid: ``scope`` is nearer than the current store, or ``scope_id`` names another project or organisation.
    """
    session = session_id or current_origin().session_id
    if scope is MemoryScope.SESSION and scope_id:
        session = scope_id
    chain = list(_chain(session))
    if scope is None:
        return _joined(chain if inherit else [level for level in chain if level.store == current_store()])
    wanted = [level for level in chain if NEAREST_FIRST.index(level.scopes[0]) >= NEAREST_FIRST.index(scope)]
    if not inherit:
        wanted = [level for level in wanted if level.scopes[0] is scope]
    if not any(level.scopes[0] is scope for level in chain) and scope not in (MemoryScope.ORG, MemoryScope.GLOBAL):
        raise Invalid(f"no {scope} is open here; name scope {own_scope()}, or begin a session first")
    _check_named(scope, scope_id, chain)
    return _joined(wanted)


def _chain(session_id: str) -> Iterator[Level]:
    here = current_store()
    if own_scope() is MemoryScope.PROJECT:
        if session_id:
            yield Level(here, (MemoryScope.SESSION,), session_id)
        yield Level(here, (MemoryScope.PROJECT,))
    if here.scope is Scope.VIEW:
        return  # a position of one log says nothing of another's
    org = _org_here()
    if org and org.path.exists():
        yield Level(org, (MemoryScope.ORG,))
    if GLOBAL_STORE.path.exists():
        yield Level(GLOBAL_STORE, (MemoryScope.GLOBAL,))


def _org_here() -> StoreId | None:
    here = current_store()
    if here.scope is Scope.ORG:
        return here
    name = org_of_project() if here.scope is Scope.PROJECT else None
    return org_store(name) if name else None


def _joined(chain: list[Level]) -> list[Level]:
    """Ask the session and the project in one go, since they share a store."""
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
    """Make the store of ``scope`` the current one, and give the scope that what is written there has.

    The caller's turn is checked where it stands, before it goes elsewhere.

    Raises:
        Invalid: the scope is not one that can be written from here; the message says what to do.
    """
    target, found = _target(scope)
    if target == current_store():
        yield found
        return
    origin = require_turn(MEMORY_WRITTEN, current_origin())
    elsewhere = use_origin(session_id=origin.session_id, turn_id=origin.turn_id, ack_token="")
    with use_store(target, create=found is MemoryScope.GLOBAL), elsewhere:
        yield found


@contextmanager
def reading(scope: MemoryScope) -> Iterator[None]:
    """Make the store of ``scope`` the current one, to read in it.

    Raises:
        NotFound: nothing was ever written to it.
        Invalid: as ``writing``.
    """
    target, _ = _target(scope, needs_session=False)
    if target == current_store():
        yield
        return
    if not target.path.exists():
        raise NotFound(f"nothing is kept in the {scope} scope yet; memory_write with scope={scope} begins it")
    with use_store(target):
        yield


def _target(scope: MemoryScope, *, needs_session: bool = True) -> tuple[StoreId, MemoryScope]:
    here, own = current_store(), own_scope()
    if scope is MemoryScope.GLOBAL:
        return GLOBAL_STORE, scope
    if scope is MemoryScope.ORG:
        return _org_or_refuse(), scope
    if own is not MemoryScope.PROJECT:
        return here, own
    if scope is MemoryScope.SESSION and needs_session and not current_origin().session_id:
        raise Invalid("scope session needs a session; begin one with session_start, or name scope project")
    return here, scope


def _org_or_refuse() -> StoreId:
    org = _org_here()
    if org is None:
        raise Invalid(
            f"{current_store().name!r} belongs to no organisation; set one with project_create (org, "
            "if_exists=update), or name scope project or global"
        )
    return org
