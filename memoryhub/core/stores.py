"""Stores: which there are, how one is opened, and which one is current.

A store is a Django database alias that is added while running. ``use_store`` is the only way in: it opens the store,
makes it the current one, and turns every database error inside into one of the hub's own.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from weakref import WeakSet

from django.db import DatabaseError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from memoryhub import env
from memoryhub.core import store_files
from memoryhub.core.errors import HubError, Invalid, Locked, NotFound, Unavailable
from memoryhub.core.permissions import reached, reaches
from memoryhub.core.routing import STORE_PREFIX, current_alias, require_current_alias
from memoryhub.core.sqlite.options import connection_settings

logger = logging.getLogger(__name__)

MAX_OPEN_STORES = 64
SLUG = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


class Scope(StrEnum):
    """Whose store it is, from the widest to the nearest."""

    GLOBAL = "global"
    ORG = "org"
    PROJECT = "project"
    VIEW = "view"
    """What a store was at a past position: a cache, made from its log, that nothing is written to."""


@dataclass(frozen=True, slots=True)
class StoreId:
    """The name of one store; ``name`` is a slug, and ``global`` for the global scope."""

    scope: Scope
    name: str

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not SLUG.fullmatch(self.name):
            raise Invalid(
                f"{self.scope} id {str(self.name)[:80]!r} is not valid: use 1 to 64 of a-z, 0-9, '.', '_', '-', "
                "starting with a letter or digit"
            )

    @property
    def alias(self) -> str:
        """The Django database alias."""
        return f"{STORE_PREFIX}{self.scope}:{self.name}"

    @property
    def path(self) -> Path:
        """The store's SQLite file."""
        return _path(os.environ.get("MEMORY_HUB_HOME"), self.scope, self.name)


_FOLDERS = {Scope.GLOBAL: "", Scope.ORG: "orgs", Scope.PROJECT: "projects", Scope.VIEW: "cache/views"}


@lru_cache(maxsize=256)
def _path(_home: str | None, scope: Scope, name: str) -> Path:
    return env.home() / _FOLDERS[scope] / name / "events.db"


GLOBAL_STORE = StoreId(Scope.GLOBAL, "global")


def project_store(project_id: str) -> StoreId:
    """Return the id of a project's store.

    Raises:
        Invalid: ``project_id`` is not a slug.
    """
    return StoreId(Scope.PROJECT, project_id)


def org_store(org_id: str) -> StoreId:
    """Return the id of an organisation's store.

    Raises:
        Invalid: ``org_id`` is not a slug.
    """
    return StoreId(Scope.ORG, org_id)


def list_projects() -> list[str]:
    """Return the ids of all projects that have a store and that the caller may know of, in order."""
    return reached(_names_in("projects"))


def list_orgs() -> list[str]:
    """Return the ids of all organisations that have a store, in order."""
    return _names_in("orgs")


def _names_in(folder: str) -> list[str]:
    return sorted(path.parent.name for path in (env.home() / folder).glob("*/events.db"))


def current_store() -> StoreId:
    """Return the store that is current here."""
    scope, name = require_current_alias().removeprefix(STORE_PREFIX).split(":", 1)
    return StoreId(Scope(scope), name)


@dataclass(frozen=True, slots=True)
class _Opened:
    inode: int
    device: int


_opened: OrderedDict[str, _Opened] = OrderedDict()
_failed: set[str] = set()
_lock = threading.RLock()
_thread = threading.local()
_connected: dict[str, WeakSet[BaseDatabaseWrapper]] = {}
"""Every thread's connection to each store."""


@contextmanager
def use_store(store: StoreId, *, create: bool = False) -> Iterator[StoreId]:
    """Open ``store`` and make it the current one inside the block.

    Raises:
        NotFound: there is no such store, and ``create`` is off; or the caller has no right to know of it.
        Locked: another process held it for longer than the busy timeout.
        Unavailable: it cannot be opened, read or written.
    """
    with _translated(store):
        if store.scope is Scope.PROJECT and not reaches(store.name):
            raise _unknown(store)
        _open(store, create=create)
        token = current_alias.set(store.alias)
        try:
            yield store
        finally:
            current_alias.reset(token)


@contextmanager
def _translated(store: StoreId) -> Iterator[None]:
    try:
        yield
    except HubError as error:
        if isinstance(error, Unavailable):
            _failed.add(store.alias)
        raise
    except ConnectionError:
        raise  # a pipe or socket of the caller's, never the store's
    except (DatabaseError, OSError) as error:
        if isinstance(error, DatabaseError) and "locked" in str(error):
            raise Locked("memory database is locked by another process") from error
        if "interrupted" in str(error):
            raise
        _failed.add(store.alias)
        _close_everywhere(store)
        raise Unavailable(f"memory database unavailable: {_reason(error)}", store=store.name) from error


def _reason(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


def _open(store: StoreId, *, create: bool) -> None:
    found = _stat(store, create=create)
    if _opened.get(store.alias) != found:
        _add(store, found)
    _align_thread(store.alias)


def _stat(store: StoreId, *, create: bool) -> _Opened:
    try:
        stat = store.path.stat()
    except FileNotFoundError:
        if store.alias in _opened or store.alias in _failed:
            raise Unavailable(f"memory database unavailable: the file of {store.name!r} is gone") from None
        if not create:
            raise _unknown(store) from None
        store_files.create_store(store.path)
        stat = store.path.stat()
    return _Opened(stat.st_ino, stat.st_dev)


def _unknown(store: StoreId) -> NotFound:
    names = _names_in(_FOLDERS[store.scope])
    known = ", ".join(reached(names) if store.scope is Scope.PROJECT else names) or "none"
    return NotFound(f"there is no {store.scope} {store.name!r} in this hub; known: {known}")


def _add(store: StoreId, found: _Opened) -> None:
    with _lock:
        forget(store)
        settings = {**connections.settings["default"], **connection_settings(str(store.path), create=False)}
        connections.settings = {**connections.settings, store.alias: settings}
        _opened[store.alias] = found
        _align_thread(store.alias)
        try:
            store_files.upgrade_if_needed(store.path, connections[store.alias])
            if store.alias in _failed:
                _check_integrity(store)
        except BaseException:
            _remove(store.alias)
            raise
        in_use = {store.alias, current_alias.get()}
        while len(_opened) > MAX_OPEN_STORES:
            _remove(next(alias for alias in _opened if alias not in in_use))


def _check_integrity(store: StoreId) -> None:
    with connections[store.alias].cursor() as cursor:
        cursor.execute("PRAGMA integrity_check")
        report = "; ".join(row[0] for row in cursor.fetchall())
    _failed.discard(store.alias)
    logger.warning("store %s is open again after a failure; integrity check: %s", store.name, report)


def forget(store: StoreId) -> None:
    """Drop the store's alias, so that the next ``use_store`` opens the file anew."""
    with _lock:
        if store.alias in _opened:
            _remove(store.alias)


def _close_everywhere(store: StoreId) -> None:
    """Forget a store that fails, and close all threads' connections to it.

    SQLite's connections of one process share what they know of a file (that its WAL index is read-only, say); only
    when the last of them is closed does the next one look again. A query that another thread is running fails too.
    """
    with _lock:
        for connection in _connected.pop(store.alias, ()):
            if connection.connection is not None:
                connection.connection.close()
        forget(store)


def _remove(alias: str) -> None:
    _opened.pop(alias, None)
    _align_thread()
    connections.settings = {key: value for key, value in connections.settings.items() if key != alias}


def _align_thread(wanted: str | None = None) -> None:
    """Close this thread's connections to stores that were forgotten or opened anew since it last looked."""
    mine: dict[str, _Opened] = _thread.__dict__.setdefault("opened", {})
    for alias, opened in list(mine.items()):
        if _opened.get(alias) is not opened:
            del mine[alias]
            connections[alias].close()
            del connections[alias]
    if wanted is not None and wanted not in mine:
        mine[wanted] = _opened[wanted]
        _connected.setdefault(wanted, WeakSet()).add(connections[wanted])
