"""Wipe deleted text from what a database has written to its disk."""

from __future__ import annotations

from memoryhub.core.backends.selected import wiping
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import upsert

# A key of ``store_meta``, set from an erasure until the text is wiped from the files: a process may die in between.
_MARK = "unwiped"


def mark_unwiped(position: int, database: str = "main") -> None:
    """Record, in the transaction that deletes text, up to which event the files must be wiped."""
    rows.execute(upsert(f"{database}.store_meta", "key", ["value"]), [_MARK, str(position)])


def is_unwiped() -> bool:
    return _mark() is not None


def wipe_free_space() -> bool:
    """Rewrite the current store without what was deleted.

    Returns False if others held the store longer than the busy timeout or the disk is full: deleted text stays in the
    files until this is repeated. Takes about a second per 100 MB, during which others can read.
    """
    mark = _mark()
    if not wiping.rewrite():
        return False
    if mark is not None:
        rows.execute("DELETE FROM store_meta WHERE key = %s AND value = %s", [_MARK, mark])
    return True


def _mark() -> str | None:
    found = rows.fetch("SELECT value FROM store_meta WHERE key = %s", [_MARK])
    return found[0][0] if found else None
