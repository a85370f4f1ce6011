"""Open stores and select the current one with ``use_store``.

A store is a Django database alias that is added at run time.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path

from django.db import DatabaseError, DataError, IntegrityError, ProgrammingError, connections

from memoryhub import env
from memoryhub.core.backends.sqlite.options import connection_settings
from memoryhub.core.errors import Damaged, Invalid, Locked, NotFound, Unavailable
from memoryhub.core.permissions import place_of_alias, reaches, sees
from memoryhub.core.stores import connections as store_connections
from memoryhub.core.stores import files
from memoryhub.core.stores.connections import Held, StoreFile
from memoryhub.core.stores.routing import STORE_PREFIX, current_alias, require_current_alias

logger = logging.getLogger(__name__)

MAX_OPEN_STORES = 64
SLUG = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


# Each scope is a separate store, so a query cannot reach another project by mistake (decision 14).
class Scope(StrEnum):
    GLOBAL = "global"
    ORG = "org"
    PROJECT = "project"
    # A store at a past position: a read-only cache built from its log.
    VIEW = "view"


# ``name`` is a slug; ``global`` for the global scope.
@dataclass(frozen=True, slots=True)
class StoreId:
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
        return f"{STORE_PREFIX}{self.scope}:{self.name}"

    @property
    def place(self) -> str:
        """Key of the store in grants."""
        return place_of_alias(self.alias)

    @property
    def path(self) -> Path:
        return _path(os.environ.get("MEMORY_HUB_HOME"), self.scope, self.name)


_FOLDERS = {Scope.GLOBAL: "", Scope.ORG: "orgs", Scope.PROJECT: "projects", Scope.VIEW: "cache/views"}


@lru_cache(maxsize=256)
def _path(_home: str | None, scope: Scope, name: str) -> Path:
    return env.home() / _FOLDERS[scope] / name / "events.db"


GLOBAL_STORE = StoreId(Scope.GLOBAL, "global")


def project_store(project_id: str) -> StoreId:
    return StoreId(Scope.PROJECT, project_id)


def org_store(org_id: str) -> StoreId:
    return StoreId(Scope.ORG, org_id)


def list_projects() -> list[str]:
    """Return the ids of the projects that the caller may see."""
    return [name for name in _names_in("projects") if reaches(f"project:{name}")]


def list_orgs() -> list[str]:
    """Return the ids of the organisations that the caller may see."""
    return [name for name in _names_in("orgs") if reaches(f"org:{name}")]


def list_shared() -> list[StoreId]:
    """Return the stores that the caller may see of organisations and, if it exists, of the global scope."""
    has_global = GLOBAL_STORE.path.exists() and reaches(GLOBAL_STORE.place)
    return [*map(org_store, list_orgs()), *([GLOBAL_STORE] if has_global else [])]


def _names_in(folder: str) -> list[str]:
    names = (path.parent.name for path in (env.home() / folder).glob("*/events.db"))
    return sorted(name for name in names if SLUG.fullmatch(name))


def current_store() -> StoreId:
    scope, name = require_current_alias().removeprefix(STORE_PREFIX).split(":", 1)
    return StoreId(Scope(scope), name)


_failed: set[str] = set()
_opening = threading.RLock()


@contextmanager
def use_store(store: StoreId, *, create: bool = False) -> Iterator[StoreId]:
    """Open ``store`` and make it the current one inside the block; translate database errors to ``HubError``.

    Raises:
        NotFound: there is no such store and ``create`` is off, or the caller may not see it.
        Locked: another process held it longer than the busy timeout.
        Damaged: its file is missing or empty, although its log has events.
        Unavailable: it cannot be opened, read or written.
    """
    if store.scope is not Scope.VIEW and not sees(store.place):
        raise unknown_store(store)
    held = _open(store, create=create)
    token = current_alias.set(store.alias)
    try:
        with _translated(store):
            yield store
    finally:
        current_alias.reset(token)
        store_connections.leave(store.alias, held)


@contextmanager
def _translated(store: StoreId) -> Iterator[None]:
    try:
        yield
    except (IntegrityError, DataError, ProgrammingError):
        raise  # a constraint was violated: a programming error; the store is fine
    except DatabaseError as error:
        if "locked" in str(error):
            raise Locked("memory database is locked by another process") from error
        if "interrupted" in str(error):
            raise
        if "disk is full" not in str(error):
            _failed.add(store.alias)
            _release_cursors(error)
            store_connections.retire(store.alias)
        raise _unavailable(store, error) from error
    except OSError as error:
        # Errors of the disk and of the hub's own files; those of git, for example, are not the store's.
        if error.errno not in _DISK_ERRORS and not _is_in_home(error.filename):
            raise
        raise _unavailable(store, error) from error


def _release_cursors(error: BaseException | None) -> None:
    # The driver closes a connection only after its last cursor, and tracebacks keep cursors alive.
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


_DISK_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO})


def _is_in_home(filename: object) -> bool:
    return isinstance(filename, str | os.PathLike) and Path(filename).is_relative_to(env.home())


def _unavailable(store: StoreId, error: Exception) -> Unavailable:
    reason = error.strerror or str(error) if isinstance(error, OSError) else str(error)
    return Unavailable(f"memory database unavailable: {reason}", store=store.name)


def _open(store: StoreId, *, create: bool) -> Held:
    try:
        with _translated(store):
            file = _stat(store, create=create)
            while (held := store_connections.hold(store.alias, file)) is None:
                _add(store, file)
            return held
    except OSError as error:
        _failed.add(store.alias)
        raise _unavailable(store, error) from error


def _stat(store: StoreId, *, create: bool) -> StoreFile:
    was_open = bool(store_connections.file_of(store.alias)) or store.alias in _failed
    try:
        stat = store.path.stat()
    except FileNotFoundError:
        is_anchored = files.is_anchored(store.path)
        # Looked for again after both questions: another thread or process may have created it in between.
        if not store.path.exists():
            _require_new(store, was_open=was_open, is_anchored=is_anchored)
            if not create:
                raise unknown_store(store) from None
            files.create_store(store.path)
        stat = store.path.stat()
    if not stat.st_size:  # check before opening: SQLite in WAL mode writes a header into an empty file
        raise Damaged(
            f"memory database unavailable: the file of {store.name!r} is empty; "
            "run `memory-hub doctor` for ways to restore it",
            store=store.name,
        )
    return StoreFile(stat.st_ino, stat.st_dev)


def _require_new(store: StoreId, *, was_open: bool, is_anchored: bool) -> None:
    # A missing store is never recreated beside an anchor that shows events (decision 38).
    if is_anchored:
        raise Damaged(
            f"memory database unavailable: the file of {store.name!r} is gone, though its log had events; "
            "run `memory-hub doctor` for ways to restore it",
            store=store.name,
        )
    if was_open:
        raise Unavailable(f"memory database unavailable: the file of {store.name!r} is gone")


def unknown_store(store: StoreId) -> NotFound:
    names = list_projects() if store.scope is Scope.PROJECT else list_orgs() if store.scope is Scope.ORG else []
    known = ", ".join(names) or "none"
    return NotFound(f"there is no {store.scope} {store.name!r} in this hub; known: {known}")


def _add(store: StoreId, file: StoreFile) -> None:
    alias = store.alias
    with _opening:
        if store_connections.file_of(alias) == file:
            return
        store_connections.drop(alias)
        settings = {**connections.settings["default"], **connection_settings(str(store.path), create=False)}
        held = store_connections.begin(alias, file, settings)
        try:
            files.require_log(store.path, held.connection)
            files.upgrade_if_needed(store.path, held.connection)
            if alias in _failed:
                _check_integrity(store)
            store_connections.publish(alias, held)
        except BaseException:
            store_connections.drop(alias)
            raise
        finally:
            store_connections.leave(alias, held)
        _drop_oldest(keep={alias, current_alias.get()})


def _drop_oldest(keep: set[str | None]) -> None:
    aliases = store_connections.open_aliases()
    spare = [alias for alias in aliases if alias not in keep]
    for alias in spare[: max(0, len(aliases) - MAX_OPEN_STORES)]:
        store_connections.drop(alias)


def _check_integrity(store: StoreId) -> None:
    with connections[store.alias].cursor() as cursor:
        cursor.execute("PRAGMA integrity_check")
        report = "; ".join(row[0] for row in cursor.fetchall())
    _failed.discard(store.alias)
    logger.warning("store %s is open again after a failure; integrity check: %s", store.name, report)


def forget(store: StoreId) -> None:
    store_connections.drop(store.alias)
    store_connections.detach(store.alias)
