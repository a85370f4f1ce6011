"""Leaving nothing of what was deleted in a store's files: SQLite itself only marks its pages free."""

from __future__ import annotations

import logging

from django.db import DatabaseError

from memoryhub.core import rows
from memoryhub.core.stores import current_store

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
