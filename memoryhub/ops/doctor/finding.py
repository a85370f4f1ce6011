"""One thing that is wrong."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from memoryhub import env
from memoryhub.core.stores.store import StoreId
from memoryhub.ops.backups.copying import backups_of
from memoryhub.ops.backups.soundness import examine_backup, hub_problem

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


_Pair = tuple[str, str]


def examine_backups(store: StoreId, *, whole: bool, deep: bool = False) -> Iterator[_Pair]:
    """Yield what is wrong with a store's newest backup, or with all of them.

    Args:
        store: whose backups to verify.
        whole: nothing was found in the store itself, so that another backup can be made.
        deep: verify all backups, not the newest alone.
    """
    for path in backups_of(store) if deep else backups_of(store)[-1:]:
        problem = examine_backup(path, store).problem
        if problem:
            yield f"the backup {path.name} cannot be restored: {problem}", _replace_backup(path, whole=whole)


def examine_hub_backups(*, deep: bool = False) -> Iterator[Finding]:
    """Yield what is wrong with the newest backup of hub.db, or with all of them."""
    for path in backups_of(None) if deep else backups_of(None)[-1:]:
        problem = hub_problem(path)
        if problem:
            what = f"the backup {path.name} cannot be restored: {problem}"
            yield Finding("the hub's backups", what, _replace_backup(path, whole=True))


def _replace_backup(path: Path, *, whole: bool) -> str:
    if whole:
        return f"`rm {quote(str(path))}`, then `memory-hub backup` makes another"
    return "mend the store first; the next backup replaces it"
