"""Map scopes to stores, and list the scopes that are visible to the caller.

A store belongs to a project, an organisation, or is the global one; memories of a session are in the store of its
project. Visible from a project are its session, the project, its organisation and the global scope; the nearest wins.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from memories.events import MEMORY_WRITTEN
from memories.models import MemoryScope
from memoryhub.core.backends.selected import stores
from memoryhub.core.errors import Invalid, NotFound
from memoryhub.core.origin import current_origin, use_origin
from memoryhub.core.stores.store import GLOBAL_STORE, Scope, StoreId, current_store, org_store, use_store
from sessions_app.gatekeeper import require_turn
from sessions_app.selectors import org_of_project

# See decision 14
NEAREST_FIRST = (MemoryScope.SESSION, MemoryScope.PROJECT, MemoryScope.ORG, MemoryScope.GLOBAL)
_OWN = {
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

    def restrict(self, memory_id: str) -> tuple[str, list[Any]]:
        """Return SQL that restricts a memory id to the visible ones, with parameters; "" if all are."""
        # Few memories belong to a session, and a partial index contains just those
        if MemoryScope.SESSION not in self.scopes:
            return (f"{memory_id} NOT IN ({_OF_SESSIONS})", []) if MemoryScope.PROJECT in self.scopes else ("", [])
        if len(self.scopes) == 1:
            return f"{memory_id} IN ({_OF_SESSIONS} AND session_id = %s)", [self.session_id]
        return f"{memory_id} NOT IN ({_OF_SESSIONS} AND session_id <> %s)", [self.session_id]


_OF_SESSIONS = "SELECT id FROM memories_memory WHERE scope = 'session'"


def own_scope() -> MemoryScope:
    return _OWN[current_store().scope]


def levels(
    scope: MemoryScope | None = None, *, inherit: bool = True, session_id: str = "", scope_id: str = ""
) -> list[Level]:
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
    chain = list(_chain(session))
    if scope is None:
        return _joined(chain if inherit else [level for level in chain if level.store == current_store()])
    wanted = [level for level in chain if NEAREST_FIRST.index(level.scopes[0]) >= NEAREST_FIRST.index(scope)]
    if not inherit:
        wanted = [level for level in wanted if level.scopes[0] is scope]
    if not any(level.scopes[0] is scope for level in chain) and scope not in (MemoryScope.ORG, MemoryScope.GLOBAL):
        raise Invalid(f"no {scope} is open here; use scope {own_scope()}, or start a session first")
    _check_named(scope, scope_id, chain)
    return _joined(wanted)


def _chain(session_id: str) -> Iterator[Level]:
    here = current_store()
    if own_scope() is MemoryScope.PROJECT:
        if session_id:
            yield Level(here, (MemoryScope.SESSION,), session_id)
        yield Level(here, (MemoryScope.PROJECT,))
    if here.scope is Scope.VIEW:
        return  # a position of one log means nothing in another
    org = _org_here()
    if org and stores.exists(org):
        yield Level(org, (MemoryScope.ORG,))
    if stores.exists(GLOBAL_STORE):
        yield Level(GLOBAL_STORE, (MemoryScope.GLOBAL,))


def _org_here() -> StoreId | None:
    here = current_store()
    if here.scope is Scope.ORG:
        return here
    name = org_of_project() if here.scope is Scope.PROJECT else None
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
    target, found = _target(scope)
    if target == current_store():
        yield found
        return
    # The turn is checked in the store of the caller, before the other store becomes current
    origin = require_turn(MEMORY_WRITTEN, current_origin())
    elsewhere = use_origin(session_id=origin.session_id, turn_id=origin.turn_id, ack_token="")
    with use_store(target, create=found is MemoryScope.GLOBAL), elsewhere:
        yield found


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
    here, own = current_store(), own_scope()
    if scope is MemoryScope.GLOBAL:
        return GLOBAL_STORE, scope
    if scope is MemoryScope.ORG:
        return _org_or_refuse(), scope
    if own is not MemoryScope.PROJECT:
        return here, own
    if scope is MemoryScope.SESSION and needs_session and not current_origin().session_id:
        raise Invalid("scope session needs a session; start one with session_start, or use scope project")
    return here, scope


def _org_or_refuse() -> StoreId:
    org = _org_here()
    if org is None:
        raise Invalid(
            f"{current_store().name!r} belongs to no organisation; set one with project_create (org, "
            "if_exists=update), or use scope project or global"
        )
    return org
