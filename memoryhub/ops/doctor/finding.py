"""Findings of the doctor: a problem and its repair, and those of files in the home."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from shlex import quote

from memoryhub import env
from memoryhub.core.backends.selected import anchors, machines, stores
from memoryhub.core.backends.sqlite.files import path_of
from memoryhub.core.errors import Moved, Unavailable
from memoryhub.core.stores.store import (
    GLOBAL_STORE,
    SLUG,
    StoreId,
    folder_of,
    org_store,
    project_store,
    require_stayed,
)
from memoryhub.ops.backups.files import (
    backups_of,
    bundle_problem,
    bundles_of,
    examine_backup,
    hub_problem,
    is_alive,
    newest_sound_backup,
)

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
    listed = ", ".join(str(path.relative_to(env.home())) for path in paths[:_SHOWN])
    if len(paths) > _SHOWN:
        return f"{listed} and {len(paths) - _SHOWN} more"
    return listed


def restore_command(store: StoreId, options: str = "") -> tuple[str, str]:
    if machines.SHARED:
        return "the server's own backup of the database, or `memory-hub bundle apply` of a bundle in backups/,", ""
    backup = newest_sound_backup(store)
    if backup:
        return f"`memory-hub restore {quote(str(backup))} {option(store)}{options}`", ""
    none = "; the home has no sound backup of it, so FILE must be one that you keep elsewhere"
    return f"`memory-hub restore FILE {option(store)}{options}`", none


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
    if not deep:
        backups = backups[-1:]
    for path in backups:
        if problem := find_problem(path):
            repair = "repair the store first; the next backup replaces this one"
            if whole:
                repair = f"`rm {quote(str(path))}`, then `memory-hub backup` makes a new one"
            yield f"the backup {path.name} cannot be restored: {problem}", repair


_FOLDERS = {"projects": project_store, "orgs": org_store}
# The file beside a store, or in its place in the home, that says that its log has events
_ANCHOR_FILE = "acknowledged" if machines.SHARED else "head"
# Drafts begin with a dot and name the process that writes them: `.events.db.<pid>.<ns>`, `.<name>.<pid>.draft`, …
_PID = re.compile(r"[.-](\d+)(?:[.-]\d+)?(?:\.draft)?(?:-wal|-shm|-journal)?$")


def examine_files() -> Iterator[Finding]:
    paths = sorted(env.home().rglob("*"))
    yield from _linked_paths(paths)
    yield from _leftovers(paths)
    yield from _misnamed()
    yield from _lost()


# The target of a link is outside the home, with unchecked permissions
def _linked_paths(paths: list[Path]) -> Iterator[Finding]:
    for path in paths:
        if not path.is_symlink() or path.is_dir():
            continue
        store = _store_at(path)
        if not path.exists():
            repair = f"`rm {quote(str(path))}`"
        elif store and path.name == "events.db" and not machines.SHARED:
            repair = f"`memory-hub restore {quote(str(path.resolve()))} {option(store)} --replace` copies it here"
        else:
            repair = f"stop `memory-hub serve`; `mv {quote(str(path.resolve()))} {quote(str(path))}`"
        link = f"{path.relative_to(env.home())} is a symbolic link to {path.readlink()}"
        yield Finding("the home folder", f"{link}, where it is not protected", repair)


# Drafts can contain text that was erased since
def _leftovers(paths: list[Path]) -> Iterator[Finding]:
    leftovers = [path for path in paths if path.name.startswith(".") and _is_left(path)]
    if leftovers:
        repair = f"`rm -r {' '.join(quote(str(path)) for path in leftovers)}`"
        yield Finding("the home folder", f"a killed process left {listed_paths(leftovers)}", repair)


def _is_left(path: Path) -> bool:
    match = _PID.search(path.name)
    return match is not None and not is_alive(match[1])


def _misnamed() -> Iterator[Finding]:
    for kind in _FOLDERS:
        for path in sorted((env.home() / kind).glob("*/events.db")):
            if not SLUG.fullmatch(path.parent.name):
                repair = f"nothing reads this folder; {set_aside(path.parent)}"
                yield Finding(f"{kind}/{path.parent.name}", f"{path.parent.name!r} is not a valid store id", repair)


def set_aside(folder: Path) -> str:
    aside = env.home() / "backups" / f"set-aside-{folder.name}"
    return f"`mv {quote(str(folder))} {quote(str(aside))}` sets it aside"


def _lost() -> Iterator[Finding]:
    for store in sorted({*_anchored(), *_backed_up()}, key=lambda store: store.alias):
        if stores.exists(store) or (path_of(store).is_symlink() and not machines.SHARED):
            continue
        where = str(folder_of(store).relative_to(env.home()))
        try:
            require_stayed(store)
        except Moved:
            continue
        except Unavailable as error:
            what, _, repair = error.message.partition("; ")
            yield Finding(where, what, repair or "correct that, and run doctor again")
            continue
        restore, none = restore_command(store)
        repair = f"{restore} puts the newest sound backup in its place{none}"
        repair += f"; where no backup is left, `memory-hub doctor --accept-loss {option(store)}` starts an empty store"
        on_purpose = f"; if it was deleted on purpose, remove its folder in backups/ and its file `{_ANCHOR_FILE}`"
        yield Finding(where, f"the store's {stores.THING} is gone", repair + on_purpose)


def _anchored() -> Iterator[StoreId]:
    for pattern in ("projects/*", "orgs/*", "global"):
        for path in env.home().glob(f"{pattern}/{_ANCHOR_FILE}"):
            store = _store_at(path)
            # With a database, a store that was deleted on another machine has no anchor there
            if store and (anchors.exists(store) or not machines.SHARED):
                yield store


def _backed_up() -> Iterator[StoreId]:
    for folder in sorted((env.home() / "backups").glob("*")):
        kind, _, name = folder.name.partition("-")
        if folder.name == "global-global":
            store = GLOBAL_STORE
        elif SLUG.fullmatch(name) and kind == "project":
            store = project_store(name)
        elif SLUG.fullmatch(name) and kind == "org":
            store = org_store(name)
        else:
            continue
        copies = bundles_of(store) if machines.SHARED else backups_of(store)
        if copies:
            yield store


def _store_at(path: Path) -> StoreId | None:
    folder = path.parent
    if path.name not in ("events.db", _ANCHOR_FILE):
        return None
    if folder == env.home() / "global":
        return GLOBAL_STORE
    make = _FOLDERS.get(folder.parent.name)
    if make and folder.parent.parent == env.home() and SLUG.fullmatch(folder.name):
        return make(folder.name)
    return None
