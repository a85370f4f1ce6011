"""Rewrite a store without what was deleted, and keep the write-ahead logs short."""

# Under steady writes SQLite never gets to truncate a write-ahead log by itself. Only the serving process runs ``keep``:
# two of them would wait for each other's locks.

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Collection
from contextlib import closing, suppress
from pathlib import Path

from django.db import DatabaseError

from memoryhub import env
from memoryhub.core.backends.sqlite.options import JOURNAL_SIZE_LIMIT
from memoryhub.core.stores import rows
from memoryhub.core.stores.store_id import current_store

logger = logging.getLogger(__name__)


def rewrite() -> bool:
    try:
        rows.execute("VACUUM")
        busy = rows.fetch("PRAGMA wal_checkpoint(TRUNCATE)")[0][0]
    except DatabaseError as error:
        logger.warning("deleted text of %s could not be wiped from its file: %s", current_store().name, error)
        return False
    if busy:
        logger.warning("a reader keeps the write-ahead log of %s from being emptied", current_store().name)
    return not busy


# The file is one of those of the home, which are searched as they are
def still_in(_texts: Collection[str], *, wiped: bool) -> list[str]:  # noqa: ARG001
    return []


def unproven() -> list[tuple[str, str]]:
    return []


CHECK_SECONDS = 5.0
_BUSY_SECONDS = 1.0


def keep(stop: threading.Event, *, every: float = CHECK_SECONDS) -> None:
    while not stop.wait(every):
        try:
            shorten_all()
        except Exception:  # such as too many open files
            logger.exception("the write-ahead logs could not be shortened; retrying")


def shorten_all(*, limit: int = JOURNAL_SIZE_LIMIT) -> list[Path]:
    shortened = []
    for log in sorted(env.home().glob("**/events.db-wal")):
        path = log.with_name("events.db")
        with suppress(FileNotFoundError):  # its last connection was closed just now
            if log.stat().st_size > limit and shorten(path):
                shortened.append(path)
    return shortened


def shorten(path: Path) -> bool:
    """Checkpoint a store's WAL and truncate it; return False if readers held it for a second."""
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=rw", uri=True, timeout=_BUSY_SECONDS)) as connection:
            busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    except sqlite3.Error as error:
        logger.warning("the WAL of %s could not be shortened: %s", path.parent.name, error)
        return False
    return not busy
