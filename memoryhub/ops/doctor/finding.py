"""Findings, and checks of backups."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from shlex import quote

from memoryhub import env
from memoryhub.core.backends.selected import machines
from memoryhub.core.stores.store import StoreId
from memoryhub.ops.backups.paths import backups_of, bundles_of
from memoryhub.ops.backups.soundness import bundle_problem, examine_backup, hub_problem, newest_sound_backup

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
    repair: str


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
    if machines.SHARED:
        return "the server's own backup of the database, or `memory-hub bundle apply` of a bundle in backups/,", ""
    backup = newest_sound_backup(store)
    none = "" if backup else "; the home has no sound backup of it, so FILE must be one that you keep elsewhere"
    return f"`memory-hub restore {quote(str(backup)) if backup else 'FILE'} {option(store)}{options}`", none


def option(store: StoreId) -> str:
    return f"--{store.scope}" if store.scope == "global" else f"--{store.scope} {store.name}"


_Pair = tuple[str, str]


# ``whole``: the store has no problem, so another backup can be made. ``deep``: all backups, not only the newest.
# Backups of another kind than this hub makes are from before a move (decision 79), and are left alone.
def examine_backups(store: StoreId, *, whole: bool, deep: bool = False) -> Iterator[_Pair]:
    if machines.SHARED:
        yield from _broken_backups(bundles_of(store), bundle_problem, whole=whole, deep=deep)
    else:
        find_problem = partial(_problem_of, store)
        yield from _broken_backups(backups_of(store), find_problem, whole=whole, deep=deep)


def _problem_of(store: StoreId, path: Path) -> str:
    return examine_backup(path, store).problem


def examine_hub_backups(*, deep: bool = False) -> Iterator[Finding]:
    if machines.SHARED:
        return  # the hub's own tables are backed up with the database
    for what, repair in _broken_backups(backups_of(None), hub_problem, whole=True, deep=deep):
        yield Finding("the hub's backups", what, repair)


def _broken_backups(
    backups: list[Path], find_problem: Callable[[Path], str], *, whole: bool, deep: bool
) -> Iterator[_Pair]:
    for path in backups if deep else backups[-1:]:
        if problem := find_problem(path):
            again = f"`rm {quote(str(path))}`, then `memory-hub backup` makes a new one"
            repair = again if whole else "repair the store first; the next backup replaces this one"
            yield f"the backup {path.name} cannot be restored: {problem}", repair
