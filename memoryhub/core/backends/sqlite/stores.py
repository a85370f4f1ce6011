"""The life of stores as files: ``events.db`` in a folder of its own, and its two places while it moves."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path
from stat import S_IWUSR
from typing import Any

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from memoryhub import env
from memoryhub.core import clock
from memoryhub.core.backends.base import Anchor, Departure
from memoryhub.core.backends.sqlite import anchors, files
from memoryhub.core.backends.sqlite.faults import FENCED
from memoryhub.core.backends.sqlite.files import (
    NAME,
    SIDE_FILES,
    connected,
    open_database,
    open_draft,
    path_of,
    remove_database,
    upgrade_lock,
)
from memoryhub.core.backends.sqlite.options import connection_settings
from memoryhub.core.backends.sqlite.structure import template_path
from memoryhub.core.disk import make_folder, replacing, sync
from memoryhub.core.errors import ConflictError, Damaged, Invalid
from memoryhub.core.stores import rows
from memoryhub.core.stores.routing import use_alias
from memoryhub.core.stores.store_id import FOLDERS, GLOBAL_STORE, SLUG, Scope, StoreId, folder_of

THING = "file"
HUB_NAME = "hub.db"
QUEUE_NAME = "jobs.db"
_HUB_FILES = {"default": HUB_NAME, "jobs": QUEUE_NAME}


def exists(store: StoreId) -> bool:
    try:
        status = path_of(store).stat()
    except FileNotFoundError:
        return False
    return not has_left(path_of(store), status)


def names(scope: Scope) -> list[str]:
    return sorted(store.name for store in _stores_with_file(scope) if exists(store))


# Here or moved away
def _stores_with_file(scope: Scope) -> list[StoreId]:
    folder_names = sorted(path.parent.name for path in (env.home() / FOLDERS[scope]).glob(f"*/{NAME}"))
    return [StoreId(scope, name) for name in folder_names if SLUG.fullmatch(name)]


# A file that replaced another one has another inode
def identity(store: StoreId) -> tuple[int, int] | None:
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
    if not stat.st_mode & S_IWUSR and has_left(path_of(store), stat):
        return None
    return stat.st_ino, stat.st_dev


def settings(store: StoreId) -> dict[str, Any]:
    return {**connections.settings["default"], **connection_settings(str(path_of(store)), create=False)}


def create(store: StoreId) -> None:
    template = template_path()
    path = path_of(store)
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
    if not path.parent.is_dir() or (path.exists() and path.stat().st_size):
        return ""
    problem = "the store's file was gone"
    if path.exists():
        problem = "the store's file was empty"
        files.move_database(path, path.with_name(f"{path.name}.{clock.now():%Y%m%dT%H%M%S%f}.kept"))
        sync(path.parent)
    create(store)
    return problem


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


# The fence is a mark and a trigger in the store itself, so it is committed like an event, and holds for processes that
# have the file open. That the file is read-only says without a query that there may be a mark. Once the store's file is
# removed, the mark is a file of its own.


_MARK = "departure"
_MARK_FILE = "moved"
_FENCE = (
    "CREATE TRIGGER IF NOT EXISTS raw_events_left BEFORE INSERT ON raw_events "
    f"BEGIN SELECT RAISE(ABORT, '{FENCED}'); END"
)
_READ_ONLY = 0o400
_WRITABLE = 0o600


def departure(store: StoreId) -> Departure | None:
    path = path_of(store)
    if path.exists():
        return _departure(path)
    try:
        return Departure(**json.loads(_mark_file(store).read_text("utf-8")))
    except FileNotFoundError:
        return None


def _mark_file(store: StoreId) -> Path:
    return path_of(store).with_name(_MARK_FILE)


def _departure(path: Path) -> Departure | None:
    try:
        with closing(open_database(path)) as connection:
            row = connection.execute("SELECT value FROM store_meta WHERE key = ?", [_MARK]).fetchone()
    except files.DatabaseError:
        return None  # it is damaged, which opening it says
    return Departure(**json.loads(row[0])) if row else None


def has_left(path: Path, status: os.stat_result) -> bool:
    return not status.st_mode & S_IWUSR and _has_left(path, status.st_ino, status.st_ctime_ns)


@lru_cache(maxsize=256)
def _has_left(path: Path, _inode: int, _changed: int) -> bool:
    return _departure(path) is not None


def prepare_to_leave(_store: StoreId) -> None:
    pass


def leave(_store: StoreId, departure: Departure) -> None:
    rows.put_meta(_MARK, json.dumps(asdict(departure)))
    rows.execute(_FENCE)


def mark_left(store: StoreId) -> None:
    path = path_of(store)
    with upgrade_lock(store):
        if departure(store) is None or has_left(path, path.stat()):
            return
        with closing(open_database(path, mode="rw")) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        path.chmod(_READ_ONLY)
        sync(path.parent)


@contextmanager
def kept_copy(store: StoreId) -> Iterator[None]:
    with connected(path_of(store), store.alias), use_alias(store.alias):
        yield


def kept_stores() -> list[StoreId]:
    stores = [GLOBAL_STORE, *_stores_with_file(Scope.ORG), *_stores_with_file(Scope.PROJECT)]
    return [store for store in stores if (gone := departure(store)) and gone.kept]


def come_back(store: StoreId, epoch: str) -> None:
    path = path_of(store)
    with _departed(store, epoch):
        for suffix in ("", *SIDE_FILES):  # SQLite gave these the mode of the file
            with suppress(FileNotFoundError):
                path.with_name(path.name + suffix).chmod(_WRITABLE)
        with closing(open_database(path, mode="rw")) as connection:
            connection.execute("PRAGMA synchronous=FULL")
            connection.executescript(
                "BEGIN IMMEDIATE; DROP TRIGGER IF EXISTS raw_events_left; "
                f"DELETE FROM store_meta WHERE key = '{_MARK}'; COMMIT"
            )


def remove_kept(store: StoreId, epoch: str) -> None:
    path = path_of(store)
    with _departed(store, epoch) as departure:
        with replacing(_mark_file(store)) as file:
            file.write(json.dumps(asdict(replace(departure, kept=False))).encode())
        sync(path.parent)
        anchors.remove(store)
        remove_database(path)
        sync(path.parent)


# All that makes a store of a file, or the other way round, has this lock, so that what was looked at still holds
@contextmanager
def _departed(store: StoreId, epoch: str) -> Iterator[Departure]:
    make_folder(path_of(store).parent)
    with upgrade_lock(store):
        gone = departure(store)
        if gone is None or not gone.kept or gone.epoch != epoch:
            raise ConflictError(f"{store.scope} {store.name!r} was moved or came back meanwhile; run it again")
        yield gone


def forget_departure(store: StoreId) -> None:
    _mark_file(store).unlink(missing_ok=True)
    sync(path_of(store).parent)


def drafts(store: StoreId) -> list[str]:
    return [path.suffixes[-2][1:] for path in sorted(path_of(store).parent.glob("arriving.*.db"))]


def _draft(store: StoreId, epoch: str) -> Path:
    return path_of(store).with_name(f"arriving.{epoch}.db")


def create_draft(store: StoreId, epoch: str) -> None:
    env.prepare_home()
    make_folder(path_of(store).parent)
    shutil.copyfile(template_path(), _draft(store, epoch))


@contextmanager
def draft(store: StoreId, epoch: str) -> Iterator[None]:
    path = _draft(store, epoch)
    if not path.exists():
        raise Invalid(f"the copy of {store.name!r} that was being made is gone; another move has replaced it")
    with open_draft(path, store.alias):
        yield
    sync(path)


def discard_draft(store: StoreId, epoch: str) -> None:
    remove_database(_draft(store, epoch))


def arrive(store: StoreId, epoch: str, anchor: Anchor) -> None:
    path = path_of(store)
    draft = _draft(store, epoch)
    make_folder(path.parent)
    with upgrade_lock(store):
        if not draft.exists():
            raise ConflictError(f"the copy of {store.name!r} is gone; another move has used or replaced it")
        if (gone := departure(store)) and gone.kept:
            # Its log was checkpointed when it left, and nothing was written since
            for suffix in SIDE_FILES:
                path.with_name(path.name + suffix).unlink(missing_ok=True)
            draft.replace(path)
        else:
            try:
                os.link(draft, path)
            except FileExistsError:  # another process may create the store at any time
                raise ConflictError(f"there is a {store.scope} {store.name!r} in {env.home()} already") from None
            draft.unlink()
        sync(path.parent)
        _mark_file(store).unlink(missing_ok=True)
    anchors.replace(store, anchor)


def assign(_store: StoreId, _server: str) -> None:
    pass


def server(_store: StoreId) -> str:
    return ""


def stay_on_this_server() -> None:
    pass
