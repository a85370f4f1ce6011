"""The life of stores as files: ``events.db`` in a folder of its own."""

from __future__ import annotations

import os
import shutil
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from stat import S_IWUSR
from typing import Any

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from memoryhub import env
from memoryhub.core import clock
from memoryhub.core.backends.sqlite import files, places
from memoryhub.core.backends.sqlite.files import NAME, path_of
from memoryhub.core.backends.sqlite.options import connection_settings
from memoryhub.core.backends.sqlite.templates import template_path
from memoryhub.core.disk import make_folder, sync
from memoryhub.core.errors import Damaged
from memoryhub.core.stores import rows
from memoryhub.core.stores.store_id import FOLDERS, SLUG, Scope, StoreId, folder_of

THING = "file"
HUB_NAME = "hub.db"
QUEUE_NAME = "jobs.db"
_HUB_FILES = {"default": HUB_NAME, "jobs": QUEUE_NAME}


# A file that replaced another one has another inode.
@dataclass(frozen=True, slots=True)
class StoreFile:
    inode: int
    device: int


def exists(store: StoreId) -> bool:
    return _is_here(store)


def _is_here(store: StoreId) -> bool:
    try:
        found = path_of(store).stat()
    except FileNotFoundError:
        return False
    return not places.has_left(path_of(store), found)


def names(scope: Scope) -> list[str]:
    found = (path.parent.name for path in (env.home() / FOLDERS[scope]).glob(f"*/{NAME}"))
    return sorted(name for name in found if SLUG.fullmatch(name) and _is_here(StoreId(scope, name)))


def identity(store: StoreId) -> StoreFile | None:
    try:
        stat = path_of(store).stat()
    except FileNotFoundError:
        return None
    if not stat.st_size:  # check before opening: SQLite in WAL mode writes a header into an empty file
        raise Damaged(
            f"memory database unavailable: the file of {store.name!r} is empty; "
            "run `memory-hub doctor` for ways to restore it",
            store=store.name,
        )
    if not stat.st_mode & S_IWUSR and places.has_left(path_of(store), stat):
        return None
    return StoreFile(stat.st_ino, stat.st_dev)


def settings(store: StoreId) -> dict[str, Any]:
    return {**connections.settings["default"], **connection_settings(str(path_of(store)), create=False)}


def create(store: StoreId) -> None:
    template, path = template_path(), path_of(store)
    make_folder(path.parent)
    draft = path.with_name(f".{path.name}.{os.getpid()}.{time.monotonic_ns()}")
    shutil.copyfile(template, draft)
    try:
        sync(draft)
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        draft.unlink()
    sync(path.parent)


def recreate(store: StoreId) -> str:
    path = path_of(store)
    if path.exists() and path.stat().st_size:
        return ""
    if not path.parent.is_dir():
        return ""
    problem = "the store's file was empty" if path.exists() else "the store's file was gone"
    if path.exists():
        _set_aside(path)
    create(store)
    return problem


def _set_aside(path: Path) -> None:
    files.move_database(path, path.with_name(f"{path.name}.{clock.now():%Y%m%dT%H%M%S%f}.kept"))
    sync(path.parent)


upgrading = files.upgrade_lock


def back_up(store: StoreId, *, reason: str) -> None:
    files.back_up(path_of(store), reason=reason)


def remove(store: StoreId) -> None:
    removed = env.home() / f".{store.name}-removed-{os.getpid()}"
    folder_of(store).rename(removed)  # atomic: a store without its folder does not exist
    shutil.rmtree(removed)


def sizes(store: StoreId) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in sorted(folder_of(store).glob(f"{NAME}*"))}


def watched(store: StoreId) -> list[Path]:
    path = path_of(store)
    return [path, path.with_name(f"{path.name}-wal")]


def changed_at(store: StoreId) -> float:
    try:
        return path_of(store).stat().st_mtime
    except OSError:
        return 0.0


def location(store: StoreId) -> str:
    return str(path_of(store))


def report_after_failure(connection: BaseDatabaseWrapper) -> str:
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA integrity_check")
        return f"integrity check: {'; '.join(row[0] for row in cursor.fetchall())}"


def has_hub() -> bool:
    return (env.home() / _HUB_FILES["default"]).exists()


def preparing_hub(_alias: str) -> AbstractContextManager[None]:
    return nullcontext()


def back_up_hub(alias: str) -> Path | None:
    path = env.home() / _HUB_FILES[alias]
    return files.back_up(path, reason=f"{path.stem}-before-upgrade")


def engine() -> str:
    return str(rows.fetch("SELECT sqlite_version()")[0][0])
