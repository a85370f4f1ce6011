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

from memoryhub import env
from memoryhub.core.sqlite.options import JOURNAL_SIZE_LIMIT

logger = logging.getLogger(__name__)

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
