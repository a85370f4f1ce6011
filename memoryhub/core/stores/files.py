"""Store files: created from a template, upgraded under a lock, backed up first."""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import lru_cache, partial
from pathlib import Path
from sqlite3 import Connection, DatabaseError, connect
from urllib.parse import quote

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.utils import load_backend

from memoryhub import env
from memoryhub.core import clock
from memoryhub.core.backends.sqlite.options import BUSY_TIMEOUT_SECONDS, connection_settings
from memoryhub.core.errors import Damaged, Locked
from memoryhub.core.file_locks import lock
from memoryhub.core.stores import schema

logger = logging.getLogger(__name__)


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


def anchor_of(path: Path) -> Path:
    return path.with_name("head")


def is_anchored(path: Path) -> bool:
    """Return whether the log of the store at ``path`` ever had an event, according to its anchor."""
    try:
        return bool(anchor_of(path).read_bytes().strip(b"\0"))
    except FileNotFoundError:
        return False


def create_store(path: Path) -> None:
    """Create an empty store at ``path`` from the migrated template; an existing one stays."""
    template = template_path()
    make_folder(path.parent)
    draft = path.with_name(f".{path.name}.{os.getpid()}.{time.monotonic_ns()}")
    shutil.copyfile(template, draft)
    try:
        sync(draft)
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        draft.unlink()
    sync(path.parent)


def make_folder(folder: Path) -> None:
    """Create a private folder of the home, and sync it and all folders above."""
    # A power cut can remove an unsynced folder together with synced files in it.
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    home = env.home()
    for parent in folder.parents:
        if not parent.is_relative_to(home):
            break
        sync(parent)
    with suppress(PermissionError):  # the user may enter the folder, but not read it
        sync(home.parent)


def copy_template(target: Path) -> None:
    """Create an empty store at ``target`` that only this process uses."""
    shutil.copyfile(template_path(), target)


def template_file() -> Path:
    """Return the path of this version's template, which may be missing or damaged."""
    return env.home() / "templates" / f"{schema.fingerprint()[:16]}.db"


def template_problem(path: Path) -> str:
    """Return why the template of new stores cannot be used, "" if it can or does not exist."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return ""
    return _template_problem(path, (found.st_ino, found.st_size, found.st_mtime_ns))


def template_path() -> Path:
    """Return the path of an empty store of this version; create it if it is missing or damaged."""
    env.prepare_home()
    path = template_file()
    path.parent.mkdir(mode=0o700, exist_ok=True)
    if not _is_sound(path):
        with file_lock(path.with_name("lock"), timeout=60):
            if not _is_sound(path):
                if problem := template_problem(path):
                    logger.warning("the template of new stores is rebuilt: %s", problem)
                _build_template(path)
    return path


def _is_sound(template: Path) -> bool:
    return template.exists() and not template_problem(template)


@lru_cache(maxsize=4)
def _template_problem(path: Path, _stamp: tuple[int, int, int]) -> str:
    try:
        with closing(connect_immutable(path)) as connection:
            found = [" ".join(text.split()) for (text,) in connection.execute("PRAGMA integrity_check(3)")]
            if found != ["ok"]:
                return "; ".join(found)[:500]
            if connection.execute("SELECT 1 FROM raw_events").fetchone():
                return "its log is not empty"
            marks = connection.execute("SELECT value FROM store_meta WHERE key = 'fingerprint'").fetchall()
            return "" if marks == [(schema.fingerprint(),)] else "it is of another version"
    except DatabaseError as error:
        return str(error)


def _build_template(path: Path) -> None:
    draft = path.with_suffix(".draft")
    for end in ("-wal", "-shm", ""):  # left by a killed process: SQLite would apply its WAL to the new file
        draft.with_name(draft.name + end).unlink(missing_ok=True)
    with connected(draft) as connection:
        schema.migrate(connection)
        connection.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)")
    sync(draft)
    draft.rename(path)


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


def require_log(path: Path, connection: BaseDatabaseWrapper) -> None:
    with connection.cursor() as cursor:
        # Migrating an empty file would make it look like a store without events.
        cursor.execute("SELECT 1 FROM sqlite_master WHERE name = 'raw_events'")
        if cursor.fetchone() is None:
            raise Damaged(
                f"memory database unavailable: the file of {path.parent.name!r} has no event log; "
                "run `memory-hub doctor` for ways to restore it"
            )


def upgrade_if_needed(path: Path, connection: BaseDatabaseWrapper) -> None:
    """Back up and migrate the store if its fingerprint differs from this version's.

    Raises:
        Unavailable: a newer version wrote the store.
        Locked: another process takes longer than a minute to upgrade it.
    """
    if schema.stored_fingerprint(connection) == schema.fingerprint():
        return
    with file_lock(path.with_name("upgrade.lock"), timeout=60):
        if schema.stored_fingerprint(connection) != schema.fingerprint():
            schema.migrate(connection, before=partial(back_up, path, reason="before-upgrade"))


def set_aside(path: Path) -> Path:
    """Rename a store's file with its side files, and return the new path."""
    kept = path.with_name(f"{path.name}.{clock.now():%Y%m%dT%H%M%S%f}.kept")
    move_database(path, kept)
    sync(path.parent)
    return kept


def move_database(path: Path, target: Path) -> None:
    # Side files first: an old WAL must never meet a new file of that name.
    for end in ("-wal", "-shm", "-journal", ""):
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


def sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
