"""Views as folders in ``cache/views/``, beside unfinished copies of stores."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, suppress

from memoryhub.core import clock
from memoryhub.core.backends.sqlite.drafts import draft_folder, drafts_folder, open_copy
from memoryhub.core.backends.sqlite.files import NAME, file_lock, path_of
from memoryhub.core.backends.sqlite.templates import copy_template
from memoryhub.core.stores import rows
from memoryhub.core.stores.store_id import StoreId, key_of

_LOCK_SECONDS = 60.0
_ABANDONED_SECONDS = 6 * 3600.0


def names(store: StoreId, prefix: str = "") -> list[tuple[str, float]]:
    found = []
    for path in drafts_folder().glob(f"{prefix or key_of(store)}-*"):
        with suppress(FileNotFoundError):  # another process has just removed it
            found.append((path.name, path.stat().st_mtime))
    return found


def touch(view: StoreId) -> bool:
    try:
        os.utime(path_of(view).parent, ns=(clock.now_ns(),) * 2)
    except FileNotFoundError:
        return False
    return True


def make(
    view: StoreId, store: StoreId, *, like: str | None, fill: Callable[[], object], may_publish: Callable[[], bool]
) -> bool:
    folder = draft_folder(store)
    try:
        draft = folder / NAME
        if like is None:
            copy_template(draft)
        else:
            shutil.copyfile(drafts_folder() / like / NAME, draft)
        with open_copy(draft):
            fill()
        with _locked():
            if not may_publish():
                return False
            if not path_of(view).exists():
                folder.rename(path_of(view).parent)
        return True
    except FileNotFoundError:  # an erasure removed the draft
        return False
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove(found: Iterable[str]) -> None:
    for name in found:
        shutil.rmtree(drafts_folder() / name, ignore_errors=True)


def remove_abandoned(_store: StoreId) -> None:
    for path in drafts_folder().glob(".draft-*"):
        if abs(clock.now().timestamp() - path.stat().st_mtime) > _ABANDONED_SECONDS:
            shutil.rmtree(path, ignore_errors=True)


def forget(store: StoreId) -> None:
    with _locked():
        folder, key = drafts_folder(), key_of(store)
        for path in [*folder.glob(f"{key}-*"), *folder.glob(f".draft-{key}-*")]:
            shutil.rmtree(path, ignore_errors=True)


forget_early = forget


def forbid_writes() -> None:
    rows.execute("PRAGMA query_only=ON")


def _locked() -> AbstractContextManager[None]:
    return file_lock(drafts_folder() / "lock", timeout=_LOCK_SECONDS)
