"""Putting a backup back: verified and upgraded beside the store, then written into its file in one transaction.

The file itself stays, so that other processes which have it open go on with it: they see the store as it was, or as it
is restored, and can lose nothing, since the store's write lock is held from the look at its head to the end.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from django.db import DatabaseError, connections

from memoryhub.core import log
from memoryhub.core.errors import Conflict, Invalid, Locked, Unavailable
from memoryhub.core.log.anchor import anchor_path, read_anchor, replace_anchor
from memoryhub.core.log.digests import GENESIS
from memoryhub.core.log.views import forget_views
from memoryhub.core.stores import rows, schema
from memoryhub.core.stores.files import file_lock, make_folder
from memoryhub.core.stores.routing import require_current_alias
from memoryhub.core.stores.store import StoreId, forget, use_store
from memoryhub.core.text import counted
from memoryhub.ops.backups import copying
from memoryhub.ops.backups.copying import BEFORE_RESTORE, path_to_keep
from memoryhub.ops.backups.soundness import require_sound

_LOG_COLUMNS = {"position", "event_id", "project_id", "payload_json", "chain_digest"}  # in every version
_LOCK_SECONDS = 60.0
_LATE_SECONDS = 2.0
_POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Restored:
    """What was done."""

    events: int
    kept: Path | None
    """The store as it was before; None where there was none."""
    undone: int
    """Events of the store that the file does not have."""
    lost: int = 0
    """Events that were anchored, and that neither the file has nor the store had, as far as it could be read."""


@dataclass(frozen=True, slots=True)
class _Head:
    position: int
    digest: str


def restore(*, store: StoreId, source: Path, replace: bool = False) -> Restored:
    """Put a backup in the place of a store, which is kept beside first.

    Args:
        store: it need not exist, or be readable.
        source: a file that ``backup`` made, or any copy of the store.
        replace: go on though the store has events that the file lacks, or cannot be read.

    Raises:
        NotFound: there is no such file.
        Invalid: it is no store, or another one's.
        Unavailable: it is damaged, its chain is broken, or a newer hub wrote it.
        Conflict: the store has events that the file lacks, or cannot be read, and ``replace`` is off.
        Locked: another process restores or upgrades it.
    """
    kept = path_to_keep(store, BEFORE_RESTORE)
    draft = kept.with_name(f".{kept.name}.{os.getpid()}.draft")
    try:
        copying.copy_database(source, draft)
        head = _prepared(draft, store, source)
        copying.make_single(draft)
        make_folder(store.path.parent)
        with file_lock(store.path.with_name("upgrade.lock"), timeout=_LOCK_SECONDS):
            anchored = _anchored(store)
            path, undone = _put_back(store, draft, kept, replace=replace)
            _finish(store, head)
    finally:
        copying.remove_database(draft)
    return Restored(head.position, path, undone, lost=max(0, anchored - head.position - undone))


def _prepared(draft: Path, store: StoreId, source: Path) -> _Head:
    """Verify the copy of the backup, bring it to this version, and return its head; errors name ``source``."""
    _require_store(draft, source)
    try:
        with copying.opened(draft):
            _require_of(store, source)
            if schema.stored_fingerprint(connections[require_current_alias()]) != schema.fingerprint():
                schema.migrate(connections[require_current_alias()])
            require_sound()
            return _Head(*log.head())
    except Unavailable as error:
        raise Unavailable(f"{source} is not sound: {error.message}") from error
    except DatabaseError as error:
        if "malformed" in str(error):
            raise Unavailable(f"{source} is damaged: {error}") from error
        raise Invalid(f"{source} is no store of this hub: {error}") from error


def _require_store(draft: Path, source: Path) -> None:
    """Check that the file has an event log before anything is asked of it."""
    with closing(copying.connect(draft)) as connection:
        try:
            found = {name for (name,) in connection.execute("SELECT name FROM pragma_table_info('raw_events')")}
        except sqlite3.DatabaseError as error:
            raise Unavailable(f"{source} is damaged: {error}") from error
    if not found:
        raise Invalid(f"{source} is no store: it has no event log")
    missing = sorted(_LOG_COLUMNS - found)
    if missing:
        raise Invalid(f"{source} is no store: its event log lacks the columns {', '.join(missing)}")


def _require_of(store: StoreId, source: Path) -> None:
    names = [name for (name,) in rows.fetch("SELECT DISTINCT project_id FROM raw_events LIMIT 2")]
    others = [name for name in names if name != store.name]
    if others:
        raise Invalid(f"{source} is of {others[0]!r}, not of {store.name!r}; restore it there")


def _put_back(store: StoreId, draft: Path, kept: Path, *, replace: bool) -> tuple[Path | None, int]:
    """Return where the store is kept as it was, and how many of its events the draft lacks."""
    try:
        if store.path.is_symlink():
            return _replace_link(store, draft, kept, replace=replace)
        if not store.path.exists() or _is_empty_file(store.path):
            return _replace_missing(store, draft, kept), 0
        return kept, _overwrite(store, draft, kept, replace=replace)
    except sqlite3.DatabaseError as error:
        if "locked" in str(error):
            raise Locked("memory database is locked by another process") from error
        _require_replace_of_broken(error, replace=replace)
        anchor_path(store).unlink(missing_ok=True)
        copying.swap_broken(store.path, draft, kept)
        return kept, 0


def _put_new(store: StoreId, draft: Path) -> None:
    anchor_path(store).unlink(missing_ok=True)
    copying.link(draft, store.path)


def _replace_link(store: StoreId, draft: Path, kept: Path, *, replace: bool) -> tuple[Path | None, int]:
    """Put the draft in the place of a symbolic link; the file that it leads to stays as it is."""
    if not store.path.exists():
        store.path.unlink()
        return _replace_missing(store, draft, kept), 0
    last, common = _compared(store, draft)
    _require_replace(last - common.position, replace=replace)
    copying.copy_database(store.path, kept)
    copying.make_single(kept)
    store.path.unlink()
    _put_new(store, draft)
    return kept, last - common.position


def _is_empty_file(path: Path) -> bool:
    # It cannot be overwritten: without a header it is not in WAL mode, so the backup's lock excludes our own reader.
    return path.is_file() and not path.stat().st_size


def _replace_missing(store: StoreId, draft: Path, kept: Path) -> Path | None:
    """Put the draft in the place of a store that is gone or empty, and keep its WAL: SQLite would replay it over that.

    The empty file that is kept says when this was done, as another copy would.
    """
    kept.touch(0o600)
    wal = store.path.with_name(f"{store.path.name}-wal")
    store.path.with_name(f"{store.path.name}-shm").unlink(missing_ok=True)
    had_wal = wal.exists()
    if had_wal:
        wal.rename(kept.with_name(f"{kept.name}-wal"))
    store.path.unlink(missing_ok=True)
    _put_new(store, draft)
    return kept if had_wal else None


def _overwrite(store: StoreId, draft: Path, kept: Path, *, replace: bool) -> int:
    """Write the draft's pages into the store's file, in one transaction of SQLite's own backup."""
    newer: list[int] = []

    def look() -> None:
        """Under the write lock, before anything is committed: is anything newer here, and is it kept?"""
        try:
            last, common = _compared(store, draft)
        except sqlite3.DatabaseError as error:
            _require_replace_of_broken(error, replace=replace)
            copying.keep_beside(store.path, kept)
            anchor_path(store).unlink(missing_ok=True)
            newer.append(0)
            return
        newer.append(last - common.position)
        _require_replace(newer[0], replace=replace)
        copying.keep_beside(store.path, kept)
        _await_anchor(store, last)
        replace_anchor(store, common.position, common.digest)  # right before the commit, and right after it

    copying.overwrite(store.path, draft, locked=look)
    return newer[0]


def _compared(store: StoreId, draft: Path) -> tuple[int, _Head]:
    """Return the store's last position, and the last event that it has in common with the draft."""
    with closing(copying.connect(store.path, mode="rw")) as live, closing(copying.connect(draft)) as copy:
        last = _last(live)
        common, beyond = 0, min(last, _last(copy)) + 1
        while beyond - common > 1:
            middle = (common + beyond) // 2
            same = _digest(live, middle) == _digest(copy, middle)
            common, beyond = (middle, beyond) if same else (common, middle)
        return last, _Head(common, _digest(live, common) or GENESIS)


def _last(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT coalesce(max(position), 0) FROM raw_events").fetchone()[0])


def _digest(connection: sqlite3.Connection, position: int) -> str:
    found = connection.execute("SELECT chain_digest FROM raw_events WHERE position = ?", [position]).fetchone()
    return str(found[0]) if found else ""


def _require_replace(newer: int, *, replace: bool) -> None:
    if newer and not replace:
        raise Conflict(
            f"the store has {counted(newer, 'event')} that the file lacks, and what was erased since would be back; "
            "say --replace to go on: the store is kept beside as it is"
        )


def _require_replace_of_broken(error: sqlite3.DatabaseError, *, replace: bool) -> None:
    if "locked" in str(error):
        raise error
    if not replace:
        raise Conflict(f"the store cannot be read ({error}); say --replace to go on: its file is kept beside")


def _await_anchor(store: StoreId, last: int) -> None:
    """Wait for the process that has just committed to anchor its event; it may have died, so not for long."""
    deadline = time.monotonic() + _LATE_SECONDS
    while 0 < _anchored(store) < last and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)


def _anchored(store: StoreId) -> int:
    try:
        anchor = read_anchor(store)
    except ValueError:
        return 0
    return anchor.position if anchor else 0


def _finish(store: StoreId, head: _Head) -> None:
    """Anchor the head, and drop the caches that were made of what the store was."""
    forget(store)
    shutil.rmtree(store.path.with_name("index"), ignore_errors=True)
    with use_store(store):
        if log.digest_at(head.position) != head.digest:
            raise Unavailable("the store is not what was restored: another process changed it; run restore again")
        replace_anchor(store, *log.head())  # a writer may have gone on from there already
        forget_views()
