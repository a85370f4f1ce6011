"""The keeper of the write-ahead logs: under steady writes SQLite never gets to shorten one by itself.

Only the serving process runs it: two keepers would wait for each other's locks.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from django.db import DatabaseError

from memoryhub import env
from memoryhub.core.backends.sqlite.options import JOURNAL_SIZE_LIMIT
from memoryhub.core.stores import rows
from memoryhub.core.stores.store import current_store

logger = logging.getLogger(__name__)

_MARK = "unwiped"
"""In ``store_meta``, from an erasure until its text is out of the files: a process may die between the two."""


def mark_unwiped(position: int, database: str = "main") -> None:
    """Note, in the transaction that deletes something, up to which event it is to be wiped from the files."""
    rows.execute(f"INSERT OR REPLACE INTO {database}.store_meta (key, value) VALUES (%s, %s)", [_MARK, str(position)])


def is_unwiped() -> bool:
    """Whether the current store's files may hold what was deleted."""
    return _mark() is not None


def wipe_free_space() -> bool:
    """Write the current store's file anew without its free pages, and empty its write-ahead log.

    Returns False where others held the store for longer than the busy timeout, or the disk has no room: what was
    deleted stays in the files until this is done again. Takes about a second for 100 MB, during which others can read.
    """
    mark = _mark()
    try:
        rows.execute("VACUUM")
        busy = rows.fetch("PRAGMA wal_checkpoint(TRUNCATE)")[0][0]
    except DatabaseError as error:
        logger.warning("what was deleted in %s could not be wiped from its file: %s", current_store().name, error)
        return False
    if busy:
        logger.warning("a reader keeps the write-ahead log of %s from being emptied", current_store().name)
        return False
    if mark is not None:
        rows.execute("DELETE FROM store_meta WHERE key = %s AND value = %s", [_MARK, mark])
    return True


def _mark() -> str | None:
    found = rows.fetch("SELECT value FROM store_meta WHERE key = %s", [_MARK])
    return found[0][0] if found else None


CHECK_SECONDS = 5.0
_BUSY_SECONDS = 1.0


def keep(stop: threading.Event, *, every: float = CHECK_SECONDS) -> None:
    """Shorten what has grown too long, again and again until ``stop`` is set."""
    while not stop.wait(every):
        shorten_all()


def shorten_all(*, limit: int = JOURNAL_SIZE_LIMIT) -> list[Path]:
    """Check-point every store whose WAL has more than ``limit`` bytes, and return those that were shortened."""
    return [path for path in _stores_over(limit) if shorten(path)]


def _stores_over(limit: int) -> Iterator[Path]:
    for log in sorted(env.home().glob("**/events.db-wal")):
        try:
            if log.stat().st_size > limit:
                yield log.with_name("events.db")
        except FileNotFoundError:
            continue  # closed by its last user, just now


def shorten(path: Path) -> bool:
    """Move a store's WAL into its file and cut it to nothing; False where readers held on to it for a second."""
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=rw", uri=True, timeout=_BUSY_SECONDS)) as connection:
            busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    except sqlite3.Error as error:
        logger.warning("the WAL of %s could not be shortened: %s", path.parent.name, error)
        return False
    return not busy
