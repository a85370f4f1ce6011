"""Views: a store at a past position, rebuilt from its log and cached in ``cache/views/``."""

# A view contains the text of its time, so it must disappear when text is erased: its name has the position of the
# last erasure, an erasure removes all views of its store, and a view that is being built meanwhile is discarded.

from __future__ import annotations

import hashlib
import os
import re
import shutil
import time
from contextlib import AbstractContextManager
from pathlib import Path

from memoryhub import env
from memoryhub.core.backends.sqlite.files import file_lock
from memoryhub.core.backends.sqlite.templates import copy_template
from memoryhub.core.errors import Locked
from memoryhub.core.log.copy import follow, open_copy
from memoryhub.core.log.digests import GENESIS
from memoryhub.core.log.read import digest_at, last_erasure
from memoryhub.core.stores import schema
from memoryhub.core.stores.store import Scope, StoreId, current_store

# Views per store; the least recently used one is removed first.
KEPT = 4

_FILE = "events.db"
_ATTEMPTS = 3
_LOCK_SECONDS = 60.0
_ABANDONED_SECONDS = 6 * 3600.0


def view_at(position: int) -> StoreId:
    """Return a view of the current store at ``position``; build it if it is not cached."""
    store = current_store()
    for _ in range(_ATTEMPTS):
        prefix = f"{_key(store)}-{last_erasure()}-{schema.fingerprint()[:8]}"
        _remove_others(store, prefix)
        view = StoreId(Scope.VIEW, f"{prefix}-{position}-{(digest_at(position) or GENESIS)[:8]}")
        if view.path.exists() or _make(view, store, prefix, position):
            os.utime(view.path.parent)
            _keep_few(prefix, view)
            return view
    raise Locked("events were erased while the view was built; try again")


def _make(view: StoreId, store: StoreId, prefix: str, position: int) -> bool:
    folder = draft_folder(store)
    try:
        draft = folder / _FILE
        if not _begin_from_nearest(draft, prefix, position):
            copy_template(draft)
        with open_copy(draft):
            follow(store.path, up_to=position)
        return _put_in_place(folder, view, prefix)
    except FileNotFoundError:  # an erasure removed the draft
        return False
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _begin_from_nearest(draft: Path, prefix: str, position: int) -> bool:
    earlier = [(at, path) for at, path in _views(prefix) if at <= position]
    if not earlier:
        return False
    shutil.copyfile(max(earlier)[1] / _FILE, draft)
    return True


def _put_in_place(folder: Path, view: StoreId, prefix: str) -> bool:
    with _locked():
        if not prefix.startswith(f"{_key(current_store())}-{last_erasure()}-"):
            return False
        if not view.path.exists():
            folder.rename(view.path.parent)
    return True


def _keep_few(prefix: str, newest: StoreId) -> None:
    by_use = sorted((path.stat().st_mtime, path) for _, path in _views(prefix) if path != newest.path.parent)
    for _, path in by_use[: max(0, len(by_use) - KEPT + 1)]:
        shutil.rmtree(path, ignore_errors=True)


def _views(prefix: str) -> list[tuple[int, Path]]:
    found = [(re.fullmatch(rf"{prefix}-(\d+)-\w+", path.name), path) for path in _folder().glob(f"{prefix}-*")]
    return [(int(match[1]), path) for match, path in found if match]


def _remove_others(store: StoreId, prefix: str) -> None:
    # Views of other versions, or left by a process that died after an erasure.
    for path in _folder().glob(f"{_key(store)}-*"):
        if not path.name.startswith(f"{prefix}-"):
            shutil.rmtree(path, ignore_errors=True)
    for path in _folder().glob(".draft-*"):
        if time.time() - path.stat().st_mtime > _ABANDONED_SECONDS:
            shutil.rmtree(path, ignore_errors=True)


def forget_views(store: StoreId | None = None) -> None:
    """Remove all views of a store and all unfinished copies of it. Default: the current store."""
    key = _key(store or current_store())
    with _locked():
        for path in [*_folder().glob(f"{key}-*"), *_folder().glob(f".draft-{key}-*")]:
            shutil.rmtree(path, ignore_errors=True)


def count_views() -> int:
    return sum(1 for _ in _folder().glob(f"{_key(current_store())}-*"))


def draft_folder(store: StoreId) -> Path:
    """Create an empty folder for a copy of ``store``; the caller removes it."""
    folder = _folder() / f".draft-{_key(store)}-{os.getpid()}-{time.monotonic_ns()}"
    folder.mkdir(mode=0o700)
    return folder


def _folder() -> Path:
    folder = env.prepare_home() / "cache" / "views"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def _locked() -> AbstractContextManager[None]:
    return file_lock(_folder() / "lock", timeout=_LOCK_SECONDS)


def _key(store: StoreId) -> str:
    return hashlib.sha256(f"{env.home()} {store.alias}".encode()).hexdigest()[:10]
