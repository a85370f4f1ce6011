"""A store's file: where it is, and how it is locked, opened, moved and copied."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from functools import lru_cache
from pathlib import Path
from urllib.parse import quote

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.utils import load_backend

from memoryhub import env
from memoryhub.core import clock
from memoryhub.core.backends.sqlite.options import BUSY_TIMEOUT_SECONDS, connection_settings
from memoryhub.core.disk import make_folder, sync
from memoryhub.core.errors import Invalid, Locked, NotFound, Unavailable
from memoryhub.core.file_locks import lock
from memoryhub.core.stores import rows
from memoryhub.core.stores.routing import use_alias
from memoryhub.core.stores.store_id import Scope, StoreId, folder_of

NAME = "events.db"
# What SQLite appends to a file's name for the files that it keeps beside it
SIDE_FILES = ("-wal", "-shm", "-journal")
_UPGRADE_LOCK_SECONDS = 60.0

# The driver's names, for modules that may not import it
FileConnection = sqlite3.Connection
Error = sqlite3.Error
DatabaseError = sqlite3.DatabaseError
OperationalError = sqlite3.OperationalError

_BACKUP_ALIAS = "store:view:backup"
_PAGES_AT_ONCE = 1000
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def path_of(store: StoreId) -> Path:
    return _store_path(os.environ.get("MEMORY_HUB_HOME"), store.scope, store.name)


@lru_cache(maxsize=256)
def _store_path(_home: str | None, scope: Scope, name: str) -> Path:
    return folder_of(StoreId(scope, name)) / NAME


# An unfinished copy is thrown away, so it needs no protection against a crash.
_DRAFT_PRAGMAS = ("PRAGMA journal_mode=OFF", "PRAGMA synchronous=OFF", "PRAGMA cache_size=-32000")


# Without Django; every statement commits by itself
def open_database(path: Path, *, mode: str = "ro") -> sqlite3.Connection:
    address = f"file:{quote(str(path))}?mode={mode}"
    return sqlite3.connect(address, uri=True, timeout=BUSY_TIMEOUT_SECONDS, isolation_level=None)


def open_immutable(path: Path) -> sqlite3.Connection:
    """Connect without Django to a file that nobody writes to, without locks or side files."""
    return sqlite3.connect(f"file:{quote(str(path))}?mode=ro&immutable=1", uri=True, isolation_level=None)


@contextmanager
def file_lock(path: Path, *, timeout: float) -> Iterator[None]:
    """Hold an exclusive lock on ``path``; raise Locked if others hold it for ``timeout`` seconds."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if not lock(descriptor, seconds=timeout):
            raise Locked(f"memory database is locked by another process ({path.name} is held)")
        yield
    finally:
        os.close(descriptor)


def upgrade_lock(store: StoreId) -> AbstractContextManager[None]:
    return file_lock(path_of(store).with_name("upgrade.lock"), timeout=_UPGRADE_LOCK_SECONDS)


@contextmanager
def connected(
    path: Path, alias: str = "store:template:new", *, immutable: bool = False
) -> Iterator[BaseDatabaseWrapper]:
    """Connect to a file under an alias that only this thread has; ``immutable`` for files that nobody writes to."""
    settings = {**connections.settings["default"], **connection_settings(str(path), create=True)}
    if immutable:
        settings["NAME"] = f"file:{quote(str(path))}?immutable=1"
    connection: BaseDatabaseWrapper = load_backend(settings["ENGINE"]).DatabaseWrapper(settings, alias)
    connections[alias] = connection
    try:
        yield connection
    finally:
        connection.close()
        del connections[alias]


def move_database(path: Path, target: Path) -> None:
    # Side files first: an old WAL must never meet a new file of that name.
    for end in (*SIDE_FILES, ""):
        part = path.with_name(path.name + end)
        if os.path.lexists(part):
            part.rename(target.with_name(target.name + end))


def back_up(path: Path, *, reason: str) -> Path:
    """Copy a live store with SQLite's online backup, and return the path under ``backups/``."""
    folder = env.prepare_home() / "backups" / path.parent.relative_to(env.home())
    make_folder(folder)
    target = folder / f"{clock.file_stamp()}-{reason}.db"
    with (
        closing(sqlite3.connect(path, timeout=BUSY_TIMEOUT_SECONDS)) as source,
        closing(sqlite3.connect(target)) as copy,
    ):
        source.backup(copy)
    sync(target)
    return target


def copy_database(source: Path, target: Path) -> None:
    """Copy a database at one moment, its WAL included, to a new private file; writers continue.

    Raises:
        NotFound: there is no such file.
        Invalid: it is a folder or not an SQLite database.
        Unavailable: it can't be read, or the copy can't be written.
    """
    if source.is_dir():
        raise Invalid(f"{source} is a folder, not a file")
    if not source.is_file():
        raise NotFound(f"there is no file {source}")
    try:
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
        with closing(_readable(source)) as original, closing(open_database(target, mode="rw")) as copy:
            original.backup(copy)
    except sqlite3.Error as error:
        kind = Invalid if "not a database" in str(error) else Unavailable
        raise kind(f"can't copy {source}: {error}") from error
    except OSError as error:
        raise Unavailable(f"can't write {target} ({error.strerror})") from error


def overwrite(target: Path, source: Path, *, locked: Callable[[], None]) -> None:
    """Replace the pages of ``target`` by those of ``source`` in one transaction.

    Args:
        target: a database in use; its tables may be damaged, if SQLite still recognises the file.
        source: a database of the same page size; ``locked`` may still change it.
        locked: called once, under the target's write lock, before the commit; an exception from it undoes everything.

    Raises:
        sqlite3.DatabaseError: the target is locked, not a database, or not writable.
    """
    called = False

    def once(status: int, _remaining: int, _pages: int) -> None:
        nonlocal called
        if called:
            return
        if status in _BUSY:  # not locked; Python would retry forever
            raise sqlite3.OperationalError("database is locked")
        called = True
        locked()

    with closing(open_database(source)) as original, closing(open_database(target, mode="rw")) as replaced:
        replaced.execute("PRAGMA writable_schema=ON")  # allows a malformed schema
        replaced.execute("PRAGMA synchronous=FULL")
        replaced.execute("PRAGMA schema_version").fetchone()  # reads the header, so fails if it is not a database
        (pages,) = original.execute("PRAGMA page_count").fetchone()
        # At least two steps: the first takes the lock, and the last commits
        original.backup(replaced, pages=max(1, min(_PAGES_AT_ONCE, pages // 2)), progress=once)


# A database with a WAL needs a writable folder; one on a read-only disk is opened as immutable
def _readable(source: Path) -> sqlite3.Connection:
    if os.access(source.parent, os.W_OK) and os.access(source, os.W_OK):
        return open_database(source, mode="rw")
    return open_immutable(source)


# Two ways: a damaged file can't be copied by SQLite
def keep_beside(source: Path, target: Path) -> None:
    try:
        copy_database(source, target)
        make_single(target)
    except (Unavailable, Invalid, sqlite3.DatabaseError):
        remove_database(target)
        try:
            for suffix in ("", "-wal"):
                path = source.with_name(source.name + suffix)
                if path.exists():
                    copy = target.with_name(target.name + suffix)
                    copy.touch(0o600)
                    shutil.copyfile(path, copy)
        except OSError as error:
            raise Unavailable(f"can't write {target} ({error.strerror})") from error


# Safe while others have the file open: without a valid header they can't write to it
def swap_broken(path: Path, draft: Path, broken: Path) -> None:
    move_database(path, broken)
    link(draft, path)


# Fails if the name exists
def link(draft: Path, path: Path) -> None:
    os.link(draft, path)
    sync(path.parent)


# Without a WAL beside it, and synced
def make_single(path: Path) -> None:
    with closing(open_database(path, mode="rw")) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")
    sync(path)


# Makes an unfinished copy the current store
@contextmanager
def open_draft(path: Path, alias: str) -> Iterator[None]:
    with connected(path, alias), use_alias(alias):
        for pragma in _DRAFT_PRAGMAS:
            rows.execute(pragma)
        yield


# Makes a copy the current store; ``immutable`` reads it without changing a byte
@contextmanager
def opened(path: Path, *, immutable: bool = False) -> Iterator[None]:
    with connected(path, _BACKUP_ALIAS, immutable=immutable), use_alias(_BACKUP_ALIAS):
        yield


def remove_database(path: Path) -> None:
    # The file first: a write-ahead log without its file is nothing
    for suffix in ("", *SIDE_FILES):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
