"""One thing that is wrong."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass

from memoryhub import env

MAKE_ROOM = "make room on the disk, then run doctor again"
MAKE_WRITABLE = "make the home folder writable, then run doctor again"
# Room for the file of a WAL's index, which has 32 KiB, and some more.
_LEAST_BYTES = 1024**2


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong, and what to do about it."""

    where: str
    """Whose it is: ``project alpha``, ``hub.db``, …"""
    what: str
    """What is wrong, as a sentence without its stop."""
    mend: str
    """What to do."""


def blamed_on_disk(where: str, problem: str) -> Finding | None:
    """Return the finding for what cannot be opened because the disk is full or read-only; None if it is neither.

    SQLite opens no database in WAL mode where it cannot make the file of the WAL's index: such a database need not be
    damaged, and must not be replaced by a backup.
    """
    home = env.home()
    if shutil.disk_usage(home).free < _LEAST_BYTES:
        return Finding(where, f"it cannot be opened while the disk is full: {problem}", MAKE_ROOM)
    if not os.access(home, os.W_OK):
        return Finding(where, f"it cannot be opened while its folder is read-only: {problem}", MAKE_WRITABLE)
    return None
