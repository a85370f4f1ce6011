"""Open stores and select the current one with ``use_store``.

A store is a Django database alias that is added at run time.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import threading
import traceback
from collections import OrderedDict
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakSet

from django.db import DatabaseError, DataError, IntegrityError, ProgrammingError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from memoryhub import env
from memoryhub.core.backends.base import Departure
from memoryhub.core.backends.selected import anchors, faults, places, stores
from memoryhub.core.errors import Damaged, Locked, Moved, NotFound, OutcomeUnknown, Unavailable
from memoryhub.core.permissions import reaches, sees
from memoryhub.core.stores import rows, schema
from memoryhub.core.stores.routing import current_alias, use_alias
from memoryhub.core.stores.store_id import (  # noqa: F401 - those who open stores name them
    GLOBAL_STORE,
    SLUG,
    Scope,
    StoreId,
    current_store,
    folder_of,
    org_store,
    project_store,
)

logger = logging.getLogger(__name__)

MAX_OPEN_STORES = 64
# The key of ``store_meta`` that has what ``arrival`` returns
ARRIVAL = "arrival"


def list_projects() -> list[str]:
    """Return the ids of the projects that the caller may see."""
    return [name for name in stores.names(Scope.PROJECT) if reaches(f"project:{name}")]


def list_orgs() -> list[str]:
    """Return the ids of the organisations that the caller may see."""
    return [name for name in stores.names(Scope.ORG) if reaches(f"org:{name}")]


def list_shared() -> list[StoreId]:
    """Return the stores that the caller may see of organisations and, if it exists, of the global scope."""
    shared = [org_store(name) for name in list_orgs()]
    if stores.exists(GLOBAL_STORE) and reaches(GLOBAL_STORE.place):
        shared.append(GLOBAL_STORE)
    return shared


_failed: set[str] = set()
_opening = threading.RLock()


@contextmanager
def use_store(store: StoreId, *, create: bool = False) -> Iterator[StoreId]:
    """Open ``store`` and make it the current one inside the block; translate database errors to ``HubError``.

    Raises:
        NotFound: there is no such store and ``create`` is off, or the caller may not see it.
        Locked: another process held it longer than the busy timeout.
        Damaged: its file is missing or empty, although its log has events.
        Moved: it is in another place since a move.
        OutcomeUnknown: it failed while a write was committed.
        Unavailable: it cannot be opened, read or written.
    """
    _require_reach(store)
    try:
        with _translated(store):
            identity = stores.identity(store) or _find_or_create(store, create=create)
            while (held := _hold(store.alias, identity)) is None:
                _connect(store, identity)
    except OSError as error:
        _failed.add(store.alias)
        raise _unavailable(store, error) from error
    try:
        with use_alias(store.alias), _translated(store):
            yield store
    finally:
        _leave(store.alias, held)


def require_store(store: StoreId) -> None:
    """Raise NotFound unless there is such a store, which the caller may see; does not open it."""
    _require_reach(store)
    if stores.exists(store):
        return
    require_stayed(store)
    if not anchors.exists(store):
        raise unknown_store(store)


def _require_reach(store: StoreId) -> None:
    if store.scope is not Scope.VIEW and not sees(store.place):
        raise unknown_store(store)


@contextmanager
def _translated(store: StoreId) -> Iterator[None]:
    try:
        yield
    except (IntegrityError, DataError, ProgrammingError) as error:
        if faults.is_fenced(error) and (gone := _gone(store)):
            raise gone from error
        raise  # a constraint was violated: a programming error; the store is fine
    except OutcomeUnknown as error:
        _retire(store, error)
        raise
    except DatabaseError as error:
        if faults.is_locked(error):
            raise Locked("memory database is locked by another process") from error
        if faults.is_interrupted(error):
            raise
        if not faults.is_full(error):
            _retire(store, error)
        raise _unavailable(store, error) from error
    except OSError as error:
        # Errors of the disk and of the hub's own files; those of git, for example, are not the store's.
        if error.errno not in _DISK_ERRORS and not _is_in_home(error.filename):
            raise
        raise _unavailable(store, error) from error


_DISK_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO})


def _is_in_home(filename: object) -> bool:
    return isinstance(filename, str | os.PathLike) and Path(filename).is_relative_to(env.home())


def _gone(store: StoreId) -> Locked | Moved | None:
    if store.scope is Scope.VIEW:
        return Locked("text was erased meanwhile; try again")
    departure = places.departure(store)
    return _moved(store, departure) if departure else None


def _retire(store: StoreId, error: BaseException | None) -> None:
    """Forget a failing store, and close the connections to it that no thread is using."""
    _failed.add(store.alias)
    # The driver closes a connection only after its last cursor, and tracebacks keep cursors alive.
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__
    drop(store.alias)
    with _lock:
        # SQLite shares what it knows of a file between the connections of a process (for example that its WAL index
        # is read-only), so a new connection sees a repair only after the last old one is closed. A connection in use
        # is closed by its own thread when it leaves its block: closing it under a running statement crashes the
        # process.
        idle = [held for held in _held.get(store.alias, ()) if _may_close(held)]
    for held in idle:
        held.connection.connection = None  # closes it, as the last reference to it


def _unavailable(store: StoreId, error: Exception) -> Unavailable:
    reason = str(error)
    if isinstance(error, OSError) and error.strerror:
        reason = error.strerror
    return Unavailable(f"memory database unavailable: {reason}", store=store.name)


def _find_or_create(store: StoreId, *, create: bool) -> Hashable:
    was_open = bool(_identities.get(store.alias)) or store.alias in _failed
    is_anchored = anchors.exists(store)
    # Looked for again after both questions: another thread or process may have created it in between.
    identity = stores.identity(store)
    if identity is None:
        require_stayed(store)
        # A missing store is never recreated beside an anchor that shows events (decision 38).
        if is_anchored:
            raise Damaged(
                f"memory database unavailable: the {stores.THING} of {store.name!r} is gone, though its log had "
                "events; run `memory-hub doctor` for ways to restore it",
                store=store.name,
            )
        if not was_open:
            if not create:
                raise unknown_store(store)
            stores.create(store)
            identity = stores.identity(store)
    if identity is None:
        raise Unavailable(f"memory database unavailable: the {stores.THING} of {store.name!r} is gone")
    return identity


def arrival() -> dict[str, Any] | None:
    """Return where the current store came from, until its move is confirmed; the fields of a ``Departure``."""
    mark = rows.meta(ARRIVAL)
    return json.loads(mark) if mark else None


def require_stayed(store: StoreId) -> None:
    """Raise Moved or Unavailable if a store that is not here has moved away, or has not arrived yet."""
    if store.scope is Scope.VIEW:
        return
    if departure := places.departure(store):
        raise _moved(store, departure)
    if places.drafts(store):
        raise Unavailable(
            f"{store.scope} {store.name!r} is being moved here; if that was interrupted, the same `memory-hub move` "
            "finishes it",
            store=store.name,
        )


def _moved(store: StoreId, departure: Departure) -> Moved:
    return Moved(
        f"{store.scope} {store.name!r} has moved to {departure.address}; it is not written to here any more",
        store=store.name,
        place=departure.address,
    )


def unknown_store(store: StoreId) -> NotFound:
    names: list[str] = []
    if store.scope is Scope.PROJECT:
        names = list_projects()
    elif store.scope is Scope.ORG:
        names = list_orgs()
    return NotFound(f"there is no {store.scope} {store.name!r} in this hub; known: {', '.join(names) or 'none'}")


def _connect(store: StoreId, identity: Hashable) -> None:
    alias = store.alias
    with _opening:
        if _identities.get(alias) == identity:
            return
        drop(alias)
        settings = stores.settings(store)
        with _lock:  # to a file unknown to other threads
            connections.settings = {**connections.settings, alias: settings}
            held = _thread.held[alias] = HeldConnection(identity, connections[alias], uses=1)
        try:
            # Migrating an empty store would make it look like one without events.
            if not held.connection.has_table("raw_events"):  # type: ignore[attr-defined]
                raise Damaged(
                    f"memory database unavailable: the {stores.THING} of {store.name!r} has no event log; "
                    "run `memory-hub doctor` for ways to restore it"
                )
            _upgrade_if_needed(store, held.connection)
            if alias in _failed:
                report = stores.report_after_failure(held.connection)
                _failed.discard(alias)
                logger.warning("store %s is open again after a failure; %s", store.name, report)
            with _lock:  # make it available to all threads
                _identities[alias] = identity
                # Lost if the alias was dropped since
                connections.settings = {**connections.settings, alias: held.connection.settings_dict}
                _held.setdefault(alias, WeakSet()).add(held)
        except BaseException:
            drop(alias)
            raise
        finally:
            _leave(alias, held)
        aliases = list(_identities)
        spare = [oldest for oldest in aliases if oldest not in (alias, current_alias())]
        for oldest in spare[: max(0, len(aliases) - MAX_OPEN_STORES)]:
            drop(oldest)


# Raises Unavailable if a newer version wrote the store
def _upgrade_if_needed(store: StoreId, connection: BaseDatabaseWrapper) -> None:
    if schema.stored_fingerprint(connection) == schema.fingerprint():
        return
    with stores.upgrading(store):
        if schema.stored_fingerprint(connection) != schema.fingerprint():
            schema.migrate(connection, before=partial(stores.back_up, store, reason="before-upgrade"))


def forget(store: StoreId) -> None:
    drop(store.alias)
    detach(store.alias)


# This process has one connection per thread and store, which is closed only while no thread uses it.


@dataclass(eq=False, slots=True, weakref_slot=True)
class HeldConnection:
    # What is behind the alias: it differs once another store of its name has replaced it.
    identity: Hashable
    connection: BaseDatabaseWrapper
    # Open ``use_store`` blocks of its thread.
    uses: int = 0
    closed: bool = False


_identities: OrderedDict[str, Hashable] = OrderedDict()
_held: dict[str, WeakSet[HeldConnection]] = {}
# Guards these two, ``connections.settings``, and every ``uses`` and ``closed``. It is taken for microseconds, never
# while a connection is closed, because that may run a checkpoint.
_lock = threading.Lock()


class _ThreadConnections(threading.local):
    def __init__(self) -> None:
        self.held: dict[str, HeldConnection] = {}


_thread = _ThreadConnections()


def _hold(alias: str, identity: Hashable) -> HeldConnection | None:
    _close_stale()
    mine = _thread.held.get(alias)
    if mine is not None and mine.uses and mine.identity != identity:
        detach(alias)
    with _lock:
        held = _thread.held.get(alias)
        if held is None:
            if _identities.get(alias) != identity:
                return None
            held = _thread.held[alias] = HeldConnection(_identities[alias], connections[alias])
            _held.setdefault(alias, WeakSet()).add(held)
        elif not held.uses and (held.closed or _identities.get(alias) != identity):
            return None  # retired by another thread meanwhile, or replaced by another file
        held.uses += 1
        return held


def _leave(alias: str, held: HeldConnection) -> None:
    with _lock:
        held.uses -= 1
    if _identities.get(alias) is not held.identity:
        _close_stale()


def detach(alias: str) -> None:
    """Close this thread's own connection, even inside its block; the next statement opens the present file."""
    held = _thread.held.pop(alias, None)
    if held is None:
        return
    with _lock:
        closes = not held.closed
        held.closed = True
    if closes:
        held.connection.close()
    del connections[alias]


def drop(alias: str) -> None:
    with _lock:
        _identities.pop(alias, None)
        connections.settings = {key: value for key, value in connections.settings.items() if key != alias}
    _close_stale()


def _close_stale() -> None:
    for alias, held in list(_thread.held.items()):
        if held.uses or _identities.get(alias) is held.identity:
            continue
        with _lock:
            closes = _may_close(held)
        if closes:
            held.connection.close()
        del _thread.held[alias]
        del connections[alias]


def _may_close(held: HeldConnection) -> bool:
    if held.uses or held.closed:
        return False
    held.closed = True
    return True
