"""Check the home's files: links, leftovers of killed processes, missing and misnamed stores."""

from __future__ import annotations

import re
from collections.abc import Iterator
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
from memoryhub.ops.backups.paths import backups_of, bundles_of, is_alive
from memoryhub.ops.doctor.finding import Finding, listed_paths, option, restore_command

_FOLDERS = {"projects": project_store, "orgs": org_store}
# The file beside a store, or in its place in the home, that says that its log has events
_ANCHOR_FILE = "acknowledged" if machines.SHARED else "head"
# Drafts begin with a dot and name the process that writes them: `.events.db.<pid>.<ns>`, `.<name>.<pid>.draft`, …
_PID = re.compile(r"[.-](\d+)(?:[.-]\d+)?(?:\.draft)?(?:-wal|-shm|-journal)?$")


def examine_files() -> Iterator[Finding]:
    paths = sorted(env.home().rglob("*"))
    yield from _links(paths)
    yield from _leftovers(paths)
    yield from _misnamed()
    yield from _lost()


# The target of a link is outside the home, with unchecked permissions
def _links(paths: list[Path]) -> Iterator[Finding]:
    for path in paths:
        if not path.is_symlink() or path.is_dir():
            continue
        target, name = path.readlink(), path.relative_to(env.home())
        store = _store_at(path) if path.name == "events.db" and not machines.SHARED else None
        if not path.exists():
            repair = f"`rm {quote(str(path))}`"
        elif store:
            repair = f"`memory-hub restore {quote(str(path.resolve()))} {option(store)} --replace` copies it here"
        else:
            repair = f"stop `memory-hub serve`; `mv {quote(str(path.resolve()))} {quote(str(path))}`"
        yield Finding("the home folder", f"{name} is a symbolic link to {target}, where it is not protected", repair)


# Drafts can contain text that was erased since
def _leftovers(paths: list[Path]) -> Iterator[Finding]:
    left = [path for path in paths if path.name.startswith(".") and _is_left(path)]
    if left:
        repair = f"`rm -r {' '.join(quote(str(path)) for path in left)}`"
        yield Finding("the home folder", f"a killed process left {listed_paths(left)}", repair)


def _is_left(path: Path) -> bool:
    found = _PID.search(path.name)
    return found is not None and not is_alive(found[1])


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
        if SLUG.fullmatch(name) and kind in ("project", "org"):
            store = project_store(name) if kind == "project" else org_store(name)
        elif folder.name == "global-global":
            store = GLOBAL_STORE
        else:
            continue
        if bundles_of(store) if machines.SHARED else backups_of(store):
            yield store


def _store_at(path: Path) -> StoreId | None:
    folder = path.parent
    if folder == env.home() / "global":
        return GLOBAL_STORE if path.name in ("events.db", _ANCHOR_FILE) else None
    make = _FOLDERS.get(folder.parent.name) if folder.parent.parent == env.home() else None
    fits = make and path.name in ("events.db", _ANCHOR_FILE) and SLUG.fullmatch(folder.name)
    return make(folder.name) if make and fits else None
