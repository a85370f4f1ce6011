"""A store's file: where it is, and how it is locked, opened, moved and copied."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from functools import lru_cache
from pathlib import Path
from sqlite3 import Connection, connect
from urllib.parse import quote

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.utils import load_backend

from memoryhub import env
from memoryhub.core import clock
from memoryhub.core.backends.sqlite.options import BUSY_TIMEOUT_SECONDS, connection_settings
from memoryhub.core.disk import make_folder, sync
from memoryhub.core.errors import Locked
from memoryhub.core.file_locks import lock
from memoryhub.core.stores.store_id import Scope, StoreId, folder_of

NAME = "events.db"
# What SQLite appends to a file's name for the files that it keeps beside it
SIDE_FILES = ("-wal", "-shm", "-journal")
_UPGRADE_LOCK_SECONDS = 60.0


def path_of(store: StoreId) -> Path:
    return _path(os.environ.get("MEMORY_HUB_HOME"), store.scope, store.name)


@lru_cache(maxsize=256)
def _path(_home: str | None, scope: Scope, name: str) -> Path:
    return folder_of(StoreId(scope, name)) / NAME


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


def connect_immutable(path: Path) -> Connection:
    """Connect without Django to a file that nobody writes to, without locks or side files."""
    return connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)


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
    relative = path.parent.relative_to(env.home())
    folder = env.prepare_home() / "backups" / relative
    make_folder(folder)
    stamp = clock.now().strftime("%Y%m%dT%H%M%S%f")[:-3]
    target = folder / f"{stamp}-{reason}.db"
    with closing(connect(path, timeout=BUSY_TIMEOUT_SECONDS)) as source, closing(connect(target)) as copy:
        source.backup(copy)
    sync(target)
    return target
