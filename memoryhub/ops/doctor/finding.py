"""Findings, and checks of backups."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from memoryhub import env
from memoryhub.core.stores.store import StoreId
from memoryhub.ops.backups.places import backups_of
from memoryhub.ops.backups.soundness import examine_backup, hub_problem, newest_sound_backup

MAKE_ROOM = "make room on the disk, then run doctor again"
MAKE_WRITABLE = "make the home folder writable, then run doctor again"
# Room for the file of a WAL's index, which has 32 KiB, and some more.
_LEAST_BYTES = 1024**2
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Finding:
    # Such as project alpha or hub.db
    where: str
    # The problem, as a sentence without its full stop
    what: str
    # The repair
    mend: str


# SQLite can't open a WAL database where it can't create the index file of the WAL. Such a database need not be
# damaged, so a restore must not be proposed.
def blamed_on_disk(where: str, problem: str) -> Finding | None:
    home = env.home()
    if shutil.disk_usage(home).free < _LEAST_BYTES:
        return Finding(where, f"it cannot be opened while the disk is full: {problem}", MAKE_ROOM)
    if not os.access(home, os.W_OK):
        return Finding(where, f"it cannot be opened while its folder is read-only: {problem}", MAKE_WRITABLE)
    return None


def listed_paths(paths: list[Path]) -> str:
    more = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
    return ", ".join(str(path.relative_to(env.home())) for path in paths[:_SHOWN]) + more


def restore_command(store: StoreId, options: str = "") -> tuple[str, str]:
    backup = newest_sound_backup(store)
    none = "" if backup else "; the home has no sound backup of it, so FILE must be one that you keep elsewhere"
    return f"`memory-hub restore {quote(str(backup)) if backup else 'FILE'} {option(store)}{options}`", none


def option(store: StoreId) -> str:
    return f"--{store.scope}" if store.scope == "global" else f"--{store.scope} {store.name}"


_Pair = tuple[str, str]


# ``whole``: the store has no problem, so another backup can be made. ``deep``: all backups, not only the newest.
def examine_backups(store: StoreId, *, whole: bool, deep: bool = False) -> Iterator[_Pair]:
    yield from _broken_backups(store, lambda path: examine_backup(path, store).problem, whole=whole, deep=deep)


def examine_hub_backups(*, deep: bool = False) -> Iterator[Finding]:
    for what, mend in _broken_backups(None, hub_problem, whole=True, deep=deep):
        yield Finding("the hub's backups", what, mend)


def _broken_backups(
    store: StoreId | None, find_problem: Callable[[Path], str], *, whole: bool, deep: bool
) -> Iterator[_Pair]:
    for path in backups_of(store) if deep else backups_of(store)[-1:]:
        if problem := find_problem(path):
            again = f"`rm {quote(str(path))}`, then `memory-hub backup` makes a new one"
            mend = again if whole else "repair the store first; the next backup replaces this one"
            yield f"the backup {path.name} cannot be restored: {problem}", mend
