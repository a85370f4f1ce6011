"""A store that moves, as files: the one that leaves gets a fence and becomes read-only, a draft is a file beside it."""

# The fence is a mark and a trigger in the store itself, so it is committed like an event, and holds for processes that
# have the file open. That the file is read-only says without a query that there may be a mark. Once the store's file is
# removed, the mark is a file of its own.

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path
from sqlite3 import DatabaseError, connect
from stat import S_IWUSR

from memoryhub import env
from memoryhub.core.backends.base import Anchor, Departure
from memoryhub.core.backends.sqlite import anchors
from memoryhub.core.backends.sqlite.faults import FENCED
from memoryhub.core.backends.sqlite.files import NAME, SIDE_FILES, connected, path_of, upgrade_lock
from memoryhub.core.backends.sqlite.options import BUSY_TIMEOUT_SECONDS
from memoryhub.core.backends.sqlite.templates import copy_template
from memoryhub.core.disk import make_folder, replacing, sync
from memoryhub.core.errors import Conflict, Invalid
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import upsert
from memoryhub.core.stores.routing import current_alias
from memoryhub.core.stores.store_id import FOLDERS, GLOBAL_STORE, SLUG, Scope, StoreId

_MARK = "departure"
_MARK_FILE = "moved"
_FENCE = (
    "CREATE TRIGGER IF NOT EXISTS raw_events_left BEFORE INSERT ON raw_events "
    f"BEGIN SELECT RAISE(ABORT, '{FENCED}'); END"
)
_READ_ONLY, _WRITABLE = 0o400, 0o600
# A draft is thrown away after a crash, so it needs no journal; it is synced when it is complete
_DRAFT_PRAGMAS = ("PRAGMA journal_mode=OFF", "PRAGMA synchronous=OFF", "PRAGMA cache_size=-32000")


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
        with closing(connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=BUSY_TIMEOUT_SECONDS)) as connection:
            found = connection.execute("SELECT value FROM store_meta WHERE key = ?", [_MARK]).fetchone()
    except DatabaseError:
        return None  # it is damaged, which opening it says
    return Departure(**json.loads(found[0])) if found else None


def has_left(path: Path, found: os.stat_result) -> bool:
    return not found.st_mode & S_IWUSR and _has_left(path, found.st_ino, found.st_ctime_ns)


@lru_cache(maxsize=256)
def _has_left(path: Path, _inode: int, _changed: int) -> bool:
    return _departure(path) is not None


def prepare_to_leave(_store: StoreId) -> None:
    pass


def leave(_store: StoreId, departure: Departure) -> None:
    rows.execute(upsert("store_meta", "key", ["value"]), [_MARK, json.dumps(asdict(departure))])
    rows.execute(_FENCE)


def mark_left(store: StoreId) -> None:
    path = path_of(store)
    with upgrade_lock(store):
        if departure(store) is None or has_left(path, path.stat()):
            return
        with closing(connect(path, timeout=BUSY_TIMEOUT_SECONDS)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        path.chmod(_READ_ONLY)
        sync(path.parent)


@contextmanager
def kept(store: StoreId) -> Iterator[None]:
    with connected(path_of(store), store.alias), _current(store):
        yield


@contextmanager
def _current(store: StoreId) -> Iterator[None]:
    token = current_alias.set(store.alias)
    try:
        yield
    finally:
        current_alias.reset(token)


def kept_stores() -> list[StoreId]:
    named = [
        StoreId(scope, path.parent.name)
        for scope in (Scope.ORG, Scope.PROJECT)
        for path in sorted((env.home() / FOLDERS[scope]).glob(f"*/{NAME}"))
        if SLUG.fullmatch(path.parent.name)
    ]
    return [store for store in (GLOBAL_STORE, *named) if (found := departure(store)) and found.kept]


def come_back(store: StoreId, epoch: str) -> None:
    path = path_of(store)
    with _left_with(store, epoch):
        for end in ("", *SIDE_FILES):  # SQLite gave these the mode of the file
            with suppress(FileNotFoundError):
                path.with_name(path.name + end).chmod(_WRITABLE)
        with closing(connect(path, timeout=BUSY_TIMEOUT_SECONDS, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous=FULL")
            connection.executescript(
                "BEGIN IMMEDIATE; DROP TRIGGER IF EXISTS raw_events_left; "
                f"DELETE FROM store_meta WHERE key = '{_MARK}'; COMMIT"
            )


def remove_kept(store: StoreId, epoch: str) -> None:
    with _left_with(store, epoch) as departure:
        _write_durably(_mark_file(store), json.dumps(asdict(replace(departure, kept=False))))
        anchors.remove(store)
        _remove(path_of(store))
        sync(path_of(store).parent)


# All that makes a store of a file, or the other way round, has this lock, so that what was looked at still holds
@contextmanager
def _left_with(store: StoreId, epoch: str) -> Iterator[Departure]:
    make_folder(path_of(store).parent)
    with upgrade_lock(store):
        found = departure(store)
        if found is None or not found.kept or found.epoch != epoch:
            raise Conflict(f"{store.scope} {store.name!r} was moved or came back meanwhile; run it again")
        yield found


def _write_durably(path: Path, text: str) -> None:
    with replacing(path) as file:
        file.write(text.encode())
    sync(path.parent)


def forget(store: StoreId) -> None:
    _mark_file(store).unlink(missing_ok=True)
    sync(path_of(store).parent)


def _remove(path: Path) -> None:
    # The file first: a write-ahead log without its file is nothing
    for end in ("", *SIDE_FILES):
        path.with_name(path.name + end).unlink(missing_ok=True)


def drafts(store: StoreId) -> list[str]:
    return [path.suffixes[-2][1:] for path in sorted(path_of(store).parent.glob("arriving.*.db"))]


def _draft(store: StoreId, epoch: str) -> Path:
    return path_of(store).with_name(f"arriving.{epoch}.db")


def create_draft(store: StoreId, epoch: str) -> None:
    env.prepare_home()
    make_folder(path_of(store).parent)
    copy_template(_draft(store, epoch))


@contextmanager
def draft(store: StoreId, epoch: str) -> Iterator[None]:
    path = _draft(store, epoch)
    if not path.exists():
        raise Invalid(f"the copy of {store.name!r} that was being made is gone; another move has replaced it")
    with connected(path, store.alias), _current(store):
        for pragma in _DRAFT_PRAGMAS:
            rows.execute(pragma)
        yield
    sync(path)


def discard_draft(store: StoreId, epoch: str) -> None:
    _remove(_draft(store, epoch))


def arrive(store: StoreId, epoch: str, anchor: Anchor) -> None:
    path, draft = path_of(store), _draft(store, epoch)
    make_folder(path.parent)
    with upgrade_lock(store):
        if not draft.exists():
            raise Conflict(f"the copy of {store.name!r} is gone; another move has used or replaced it")
        if (found := departure(store)) and found.kept:
            # Its log was checkpointed when it left, and nothing was written since
            for end in SIDE_FILES:
                path.with_name(path.name + end).unlink(missing_ok=True)
            draft.replace(path)
        else:
            _link(draft, path, store)
        sync(path.parent)
        _mark_file(store).unlink(missing_ok=True)
    anchors.replace(store, anchor)


# Another process may create the store at any time; the new name is refused then
def _link(draft: Path, path: Path, store: StoreId) -> None:
    try:
        os.link(draft, path)
    except FileExistsError:
        raise Conflict(f"there is a {store.scope} {store.name!r} in {env.home()} already") from None
    draft.unlink()


def assign(_store: StoreId, _server: str) -> None:
    pass


def server(_store: StoreId) -> str:
    return ""


def stay_on_this_server() -> None:
    pass
