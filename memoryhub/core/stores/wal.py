"""Truncate write-ahead logs: under steady writes SQLite never gets to do it by itself."""

# Only the serving process runs ``keep``: two of them would wait for each other's locks.

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

# A key of ``store_meta``, set from an erasure until the text is wiped from the files: a process may die in between.
_MARK = "unwiped"


def mark_unwiped(position: int, database: str = "main") -> None:
    """Record, in the transaction that deletes text, up to which event the files must be wiped."""
    rows.execute(f"INSERT OR REPLACE INTO {database}.store_meta (key, value) VALUES (%s, %s)", [_MARK, str(position)])


def is_unwiped() -> bool:
    return _mark() is not None


def wipe_free_space() -> bool:
    """Rewrite the current store's file without free pages, and empty its write-ahead log.

    Returns False if others held the store longer than the busy timeout or the disk is full: deleted text stays in the
    files until this is repeated. Takes about a second per 100 MB, during which others can read.
    """
    mark = _mark()
    try:
        rows.execute("VACUUM")
        busy = rows.fetch("PRAGMA wal_checkpoint(TRUNCATE)")[0][0]
    except DatabaseError as error:
        logger.warning("deleted text of %s could not be wiped from its file: %s", current_store().name, error)
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
    while not stop.wait(every):
        shorten_all()


def shorten_all(*, limit: int = JOURNAL_SIZE_LIMIT) -> list[Path]:
    return [path for path in _stores_over(limit) if shorten(path)]


def _stores_over(limit: int) -> Iterator[Path]:
    for log in sorted(env.home().glob("**/events.db-wal")):
        try:
            if log.stat().st_size > limit:
                yield log.with_name("events.db")
        except FileNotFoundError:
            continue  # its last connection was closed just now


def shorten(path: Path) -> bool:
    """Checkpoint a store's WAL and truncate it; return False if readers held it for a second."""
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=rw", uri=True, timeout=_BUSY_SECONDS)) as connection:
            busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    except sqlite3.Error as error:
        logger.warning("the WAL of %s could not be shortened: %s", path.parent.name, error)
        return False
    return not busy
