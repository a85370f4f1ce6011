"""Check the home's files: links, leftovers of killed processes, missing and misnamed stores."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from shlex import quote

from memoryhub import env
from memoryhub.core.backends.selected import stores
from memoryhub.core.backends.sqlite.files import path_of
from memoryhub.core.stores.store import GLOBAL_STORE, SLUG, StoreId, folder_of, org_store, project_store
from memoryhub.ops.backups.places import backups_of, is_alive
from memoryhub.ops.doctor.finding import Finding, listed_paths, option, restore_command

_FOLDERS = {"projects": project_store, "orgs": org_store}
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
        store = _store_at(path) if path.name == "events.db" else None
        if not path.exists():
            mend = f"`rm {quote(str(path))}`"
        elif store:
            mend = f"`memory-hub restore {quote(str(path.resolve()))} {option(store)} --replace` copies it here"
        else:
            mend = f"stop `memory-hub serve`; `mv {quote(str(path.resolve()))} {quote(str(path))}`"
        yield Finding("the home folder", f"{name} is a symbolic link to {target}, where it is not protected", mend)


# Drafts can contain text that was erased since
def _leftovers(paths: list[Path]) -> Iterator[Finding]:
    left = [path for path in paths if path.name.startswith(".") and _is_left(path)]
    if left:
        mend = f"`rm -r {' '.join(quote(str(path)) for path in left)}`"
        yield Finding("the home folder", f"a killed process left {listed_paths(left)}", mend)


def _is_left(path: Path) -> bool:
    found = _PID.search(path.name)
    return found is not None and not is_alive(found[1])


def _misnamed() -> Iterator[Finding]:
    for kind in _FOLDERS:
        for path in sorted((env.home() / kind).glob("*/events.db")):
            if not SLUG.fullmatch(path.parent.name):
                mend = f"nothing reads this folder; {set_aside(path.parent)}"
                yield Finding(f"{kind}/{path.parent.name}", f"{path.parent.name!r} is not a valid store id", mend)


def set_aside(folder: Path) -> str:
    aside = env.home() / "backups" / f"set-aside-{folder.name}"
    return f"`mv {quote(str(folder))} {quote(str(aside))}` sets it aside"


def _lost() -> Iterator[Finding]:
    anchored = [_store_at(path) for path in env.home().glob("projects/*/head")]
    anchored += [_store_at(path) for path in env.home().glob("orgs/*/head")]
    shared = [GLOBAL_STORE] if (env.home() / "global" / "head").exists() else []
    for store in sorted({*filter(None, anchored), *shared, *_backed_up()}, key=lambda store: store.alias):
        if path_of(store).is_symlink() or stores.exists(store):
            continue
        restore, none = restore_command(store)
        mend = f"{restore} puts the newest sound backup in its place{none}"
        mend += f"; where no backup is left, `memory-hub doctor --accept-loss {option(store)}` starts an empty store"
        on_purpose = "; if it was deleted on purpose, remove its folder in backups/ and its file `head`"
        yield Finding(str(folder_of(store).relative_to(env.home())), "the store's file is gone", mend + on_purpose)


def _backed_up() -> Iterator[StoreId]:
    for folder in sorted((env.home() / "backups").glob("*")):
        kind, _, name = folder.name.partition("-")
        if SLUG.fullmatch(name) and kind in ("project", "org"):
            store = project_store(name) if kind == "project" else org_store(name)
        elif folder.name == "global-global":
            store = GLOBAL_STORE
        else:
            continue
        if backups_of(store):
            yield store


def _store_at(path: Path) -> StoreId | None:
    folder = path.parent
    if folder == env.home() / "global":
        return GLOBAL_STORE if path.name in ("events.db", "head") else None
    make = _FOLDERS.get(folder.parent.name) if folder.parent.parent == env.home() else None
    fits = make and path.name in ("events.db", "head") and SLUG.fullmatch(folder.name)
    return make(folder.name) if make and fits else None
