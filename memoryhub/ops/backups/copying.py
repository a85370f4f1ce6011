"""Copies of a database that is in use, and the look into one."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

from memoryhub import env
from memoryhub.core import clock
from memoryhub.core.backends.sqlite.options import BUSY_TIMEOUT_SECONDS
from memoryhub.core.errors import Invalid, NotFound, Unavailable
from memoryhub.core.stores import files
from memoryhub.core.stores.files import make_folder
from memoryhub.core.stores.routing import current_alias
from memoryhub.core.stores.store import StoreId

BEFORE_RESTORE = "-before-restore.db"
BEFORE_REBUILD = "-before-rebuild.db"
_STAMP_LENGTH = len("20261120T083000000")
_NAME = re.compile(r"\d{8}T\d{9}Z\.db")
_NAME_BEFORE = re.compile(r"\d{8}T\d{9}Z-before-(restore|rebuild)\.db")


def folder_of(store: StoreId | None) -> Path:
    """Return where a store's backups are, or hub.db's; it may not exist yet."""
    return env.home() / "backups" / (f"{store.scope}-{store.name}" if store else "hub")


def backups_of(store: StoreId | None) -> list[Path]:
    """Return a store's backups, or hub.db's, the oldest first."""
    return sorted(path for path in folder_of(store).glob("*.db") if _NAME.fullmatch(path.name))


def kept_before_restores(store: StoreId) -> list[Path]:
    """Return the copies of a store as it was before it was restored or built anew, the oldest first."""
    return sorted(path for path in folder_of(store).glob("*.db") if _NAME_BEFORE.fullmatch(path.name))


def path_to_keep(store: StoreId, suffix: str) -> Path:
    """Return where to keep a store's file as it is before it is replaced, in a folder that exists.

    Args:
        store: whose file it is.
        suffix: ``BEFORE_RESTORE`` or ``BEFORE_REBUILD``.
    """
    return new_path(store).with_name(f"{_stamp()}Z{suffix}")


def made_at(backup: Path) -> datetime:
    """Return when a backup was made, or a store was kept beside, by the name of its file."""
    return datetime.strptime(backup.name[:_STAMP_LENGTH], "%Y%m%dT%H%M%S%f").replace(tzinfo=UTC)


def new_path(store: StoreId | None) -> Path:
    """Return the path of a backup that is made now, in a folder that exists."""
    folder = folder_of(store)
    env.prepare_home()
    make_folder(folder)
    return folder / f"{_stamp()}Z.db"


def _stamp() -> str:
    return clock.now().strftime("%Y%m%dT%H%M%S%f")[:-3]


_ALIAS = "store:view:backup"
_PAGES_AT_ONCE = 1000
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def connect(path: Path, *, mode: str = "ro") -> sqlite3.Connection:
    """Connect to a database past Django; every statement commits by itself."""
    address = f"file:{quote(str(path))}?mode={mode}"
    return sqlite3.connect(address, uri=True, timeout=BUSY_TIMEOUT_SECONDS, isolation_level=None)


def copy_database(source: Path, target: Path) -> None:
    """Copy a database as it stands at one moment, its WAL included, to a new private file; writers go on meanwhile.

    Raises:
        NotFound: there is no such file.
        Invalid: it is a folder, or no SQLite database.
        Unavailable: it cannot be read, or the copy not be written.
    """
    if source.is_dir():
        raise Invalid(f"{source} is a folder, not a file")
    if not source.is_file():
        raise NotFound(f"there is no file {source}")
    try:
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
        with closing(_readable(source)) as original, closing(connect(target, mode="rw")) as copy:
            original.backup(copy)
    except sqlite3.Error as error:
        kind = Invalid if "not a database" in str(error) else Unavailable
        raise kind(f"{source} cannot be copied: {error}") from error
    except OSError as error:
        raise Unavailable(f"{target} cannot be written ({error.strerror})") from error


def overwrite(target: Path, source: Path, *, locked: Callable[[], None]) -> None:
    """Replace the pages of ``target`` by those of ``source`` in one transaction; the file itself stays.

    Other processes that have the file open see it as it was or as it is then, and none is left with a file that has
    lost its name. Damage to the target's tables does not matter, as long as SQLite knows the file for a database.

    Args:
        target: a database in use.
        source: a database of the same page size; it may still be changed by ``locked``.
        locked: called once, under the target's write lock and before anything is committed; what it raises undoes all.

    Raises:
        sqlite3.DatabaseError: the target is locked, is no database, or cannot be written.
    """
    called = False

    def once(status: int, _left: int, _pages: int) -> None:
        nonlocal called
        if called:
            return
        if status in _BUSY:  # the lock was not given, and Python would try again for ever
            raise sqlite3.OperationalError("database is locked")
        called = True
        locked()

    with closing(connect(source)) as original, closing(connect(target, mode="rw")) as replaced:
        replaced.execute("PRAGMA writable_schema=ON")  # lets the statements below pass a malformed schema
        replaced.execute("PRAGMA synchronous=FULL")
        replaced.execute("PRAGMA schema_version").fetchone()  # reads the header: is it a database?
        (pages,) = original.execute("PRAGMA page_count").fetchone()
        # The first step takes the lock, and must not be the last, which commits.
        original.backup(replaced, pages=max(1, min(_PAGES_AT_ONCE, pages // 2)), progress=once)


def _readable(source: Path) -> sqlite3.Connection:
    """Connect for reading; a database with a WAL wants its folder writable, and one on a read-only disk has none."""
    if os.access(source.parent, os.W_OK) and os.access(source, os.W_OK):
        return connect(source, mode="rw")
    return sqlite3.connect(f"file:{quote(str(source))}?immutable=1", uri=True, isolation_level=None)


def keep_beside(source: Path, target: Path) -> None:
    """Copy a database that is about to be replaced, whatever is wrong with it; SQLite writes nothing to it meanwhile.

    Raises:
        Unavailable: the copy cannot be written.
    """
    try:
        copy_database(source, target)
        make_single(target)
    except (Unavailable, Invalid, sqlite3.DatabaseError):
        _copy_files(source, target)


def _copy_files(source: Path, target: Path) -> None:
    """Copy a file that SQLite does not read, and its WAL, as they are."""
    remove_database(target)
    try:
        for end in ("", "-wal"):
            path = source.with_name(source.name + end)
            if path.exists():
                copy = target.with_name(target.name + end)
                copy.touch(0o600)
                shutil.copyfile(path, copy)
    except OSError as error:
        raise Unavailable(f"{target} cannot be written ({error.strerror})") from error


def swap_broken(path: Path, draft: Path, kept: Path) -> None:
    """Move a file that is no database any more aside, with all that belongs to it, and put a draft in its place.

    Whoever has it open still cannot write to it: its header is not a database's.
    """
    files.move_database(path, kept)
    link(draft, path)


def link(draft: Path, path: Path) -> None:
    """Give a finished file its name, where there is none."""
    os.link(draft, path)
    files.sync(path.parent)


def make_single(path: Path) -> None:
    """Leave a copy as one file that needs no WAL beside it, and wait until it is on the disk."""
    with closing(connect(path, mode="rw")) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")
    files.sync(path)


@contextmanager
def opened(path: Path, *, immutable: bool = False) -> Iterator[None]:
    """Make a copy of a store the current store inside the block; ``immutable`` reads it without changing a byte."""
    with files.connected(path, _ALIAS, immutable=immutable):
        token = current_alias.set(_ALIAS)
        try:
            yield
        finally:
            current_alias.reset(token)


def remove_database(path: Path) -> None:
    """Remove a database with what SQLite keeps beside it."""
    for each in (path, *(path.with_name(path.name + end) for end in ("-wal", "-shm", "-journal"))):
        each.unlink(missing_ok=True)


def is_alive(pid: str) -> bool:
    """Return whether a process, of any user, has this id."""
    try:
        os.kill(int(pid), 0)
    except (ValueError, OverflowError, ProcessLookupError):
        return False
    except PermissionError:
        pass
    return True
