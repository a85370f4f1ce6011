"""Copies of a database that is in use, and the look into one."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from memoryhub.core import store_files
from memoryhub.core.errors import Invalid, NotFound, Unavailable
from memoryhub.core.routing import current_alias
from memoryhub.core.sqlite.options import BUSY_TIMEOUT_SECONDS

_ALIAS = "store:view:backup"


def connect(path: Path, *, mode: str = "ro") -> sqlite3.Connection:
    """Connect to a database past Django; every statement commits by itself."""
    address = f"file:{quote(str(path))}?mode={mode}"
    return sqlite3.connect(address, uri=True, timeout=BUSY_TIMEOUT_SECONDS, isolation_level=None)


def copy_database(source: Path, target: Path) -> None:
    """Copy a database as it stands at one moment, its WAL included, to a new private file; writers go on meanwhile.

    Raises:
        NotFound: there is no such file.
        Invalid: it is no SQLite database.
        Unavailable: it cannot be read, or the copy not be written.
    """
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


def _readable(source: Path) -> sqlite3.Connection:
    """Connect for reading; a database with a WAL wants its folder writable, and one on a read-only disk has none."""
    if os.access(source.parent, os.W_OK) and os.access(source, os.W_OK):
        return connect(source, mode="rw")
    return sqlite3.connect(f"file:{quote(str(source))}?immutable=1", uri=True, isolation_level=None)


def make_single(path: Path) -> None:
    """Leave a copy as one file that needs no WAL beside it, and wait until it is on the disk."""
    with closing(connect(path, mode="rw")) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")
    store_files.sync(path)


@contextmanager
def opened(path: Path) -> Iterator[None]:
    """Make a copy of a store the current store inside the block."""
    with store_files.connected(path, _ALIAS):
        token = current_alias.set(_ALIAS)
        try:
            yield
        finally:
            current_alias.reset(token)


def remove_database(path: Path) -> None:
    """Remove a database with what SQLite keeps beside it."""
    for each in (path, *(path.with_name(path.name + end) for end in ("-wal", "-shm", "-journal"))):
        each.unlink(missing_ok=True)
