"""Restore stores and the hub's own tables from backups."""

from __future__ import annotations

import os
import shutil
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from django.db import DatabaseError, connections

from memoryhub import env
from memoryhub.core import clock, log
from memoryhub.core.backends.selected import anchors, faults, stores
from memoryhub.core.backends.sqlite import files
from memoryhub.core.backends.sqlite.files import move_database, path_of
from memoryhub.core.disk import make_folder, sync
from memoryhub.core.errors import ConflictError, Invalid, Locked, Unavailable
from memoryhub.core.log.anchor import read_anchor, replace_anchor
from memoryhub.core.log.digests import GENESIS
from memoryhub.core.log.views import forget_views
from memoryhub.core.stores import schema
from memoryhub.core.stores.routing import require_current_alias
from memoryhub.core.stores.store import StoreId, folder_of, forget, require_stayed, use_store
from memoryhub.core.text import counted
from memoryhub.ops.backups.files import BEFORE_RESTORE, backup_folder, hub_problem, path_to_keep, require_sound
from memoryhub.ops.backups.service import KEPT_BEFORE_RESTORE

_LOG_COLUMNS = {"position", "event_id", "project_id", "payload_json", "chain_digest"}  # in every version
_LATE_SECONDS = 2.0
_POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Restored:
    events: int
    # The replaced file; None if there was none
    previous_file: Path | None
    # Events of the store that the backup lacks
    undone: int
    # Anchored events that neither the backup nor the store has
    lost: int = 0


@dataclass(frozen=True, slots=True)
class _Head:
    position: int
    digest: str


def restore(*, store: StoreId, source: Path, replace: bool = False) -> Restored:
    """Replace a store by a backup; the replaced file is kept.

    Args:
        store: need not exist or be readable.
        source: a backup, or any copy of the store.
        replace: continue if the store has events that the backup lacks, or can't be read.

    Raises:
        NotFound: there is no such file.
        Invalid: it is not a store, or another store's.
        Unavailable: it is damaged, its chain is broken, or a newer version wrote it.
        ConflictError: ``replace`` is needed.
        Moved: the store has moved to another place.
        Locked: another process restores or upgrades the store.
    """
    require_stayed(store)
    previous = path_to_keep(store, BEFORE_RESTORE)
    draft = previous.with_name(f".{previous.name}.{os.getpid()}.draft")
    try:
        files.copy_database(source, draft)
        head = _prepared(draft, store, source)
        files.make_single(draft)
        make_folder(path_of(store).parent)
        with stores.upgrading(store):
            anchored = _anchored(store)
            path, undone = _put_back(store, draft, previous, replace=replace)
            _finish(store, head)
    finally:
        files.remove_database(draft)
    return Restored(head.position, path, undone, lost=max(0, anchored - head.position - undone))


# Errors name ``source``, not the draft
def _prepared(draft: Path, store: StoreId, source: Path) -> _Head:
    _require_store(draft, source)
    try:
        with files.opened(draft):
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
        raise Invalid(f"{source} is not a store of this hub: {error}") from error


def _require_store(draft: Path, source: Path) -> None:
    with closing(files.open_database(draft)) as connection:
        try:
            columns = {name for (name,) in connection.execute("SELECT name FROM pragma_table_info('raw_events')")}
        except files.DatabaseError as error:
            raise Unavailable(f"{source} is damaged: {error}") from error
    if not columns:
        raise Invalid(f"{source} is not a store: it has no event log")
    missing = sorted(_LOG_COLUMNS - columns)
    if missing:
        raise Invalid(f"{source} is not a store: its event log lacks the columns {', '.join(missing)}")


def _require_of(store: StoreId, source: Path) -> None:
    event = log.events().exclude(project_id=store.name).first()
    if event:
        raise Invalid(f"{source} is a backup of {event.project_id!r}, not of {store.name!r}; restore it there")


def _put_back(store: StoreId, draft: Path, previous: Path, *, replace: bool) -> tuple[Path | None, int]:
    try:
        if path_of(store).is_symlink():
            return _replace_link(store, draft, previous, replace=replace)
        if not path_of(store).exists() or _is_empty_file(path_of(store)):
            return _replace_missing(store, draft, previous), 0
        return previous, _overwrite(store, draft, previous, replace=replace)
    except files.DatabaseError as error:
        if faults.is_locked(error):
            raise Locked("memory database is locked by another process") from error
        _require_replace_of_broken(error, replace=replace)
        anchors.remove(store)
        files.swap_broken(path_of(store), draft, previous)
        return previous, 0


def _put_new(store: StoreId, draft: Path) -> None:
    anchors.remove(store)
    files.link(draft, path_of(store))


# The file that the link points to is not changed
def _replace_link(store: StoreId, draft: Path, previous: Path, *, replace: bool) -> tuple[Path | None, int]:
    if not path_of(store).exists():
        path_of(store).unlink()
        return _replace_missing(store, draft, previous), 0
    last, common = _count_undone(store, draft)
    _require_replace(last - common.position, replace=replace)
    files.copy_database(path_of(store), previous)
    files.make_single(previous)
    path_of(store).unlink()
    _put_new(store, draft)
    return previous, last - common.position


def _is_empty_file(path: Path) -> bool:
    # Not overwritten: without a header it is not in WAL mode, so the backup's lock would exclude our own reader
    return path.is_file() and not path.stat().st_size


# The WAL moves too: SQLite would replay it over the restored file. The empty file that is kept records the time
# of the restore (decision 37).
def _replace_missing(store: StoreId, draft: Path, previous: Path) -> Path | None:
    previous.touch(0o600)
    wal = path_of(store).with_name(f"{path_of(store).name}-wal")
    path_of(store).with_name(f"{path_of(store).name}-shm").unlink(missing_ok=True)
    had_wal = wal.exists()
    if had_wal:
        wal.rename(previous.with_name(f"{previous.name}-wal"))
    path_of(store).unlink(missing_ok=True)
    _put_new(store, draft)
    return previous if had_wal else None


# In place, because processes that have the file open would go on writing into a file without a name (decision 22)
def _overwrite(store: StoreId, draft: Path, previous: Path, *, replace: bool) -> int:
    newer: list[int] = []

    def look() -> None:
        require_stayed(store)  # a move may have ended since, and its mark is in the file that is replaced
        try:
            last, common = _count_undone(store, draft)
        except files.DatabaseError as error:
            _require_replace_of_broken(error, replace=replace)
            files.keep_beside(path_of(store), previous)
            anchors.remove(store)
            newer.append(0)
            return
        newer.append(last - common.position)
        _require_replace(newer[0], replace=replace)
        files.keep_beside(path_of(store), previous)
        _await_anchor(store, last)
        # Just before the commit; ``_finish`` sets the new head after it
        replace_anchor(store, common.position, common.digest)

    files.overwrite(path_of(store), draft, locked=look)
    return newer[0]


# The store's last position, and the last event in common with the draft, found by bisection
def _count_undone(store: StoreId, draft: Path) -> tuple[int, _Head]:
    with closing(files.open_database(path_of(store), mode="rw")) as live, closing(files.open_database(draft)) as copy:
        last = _last_position(live)
        common = 0
        beyond = min(last, _last_position(copy)) + 1
        while beyond - common > 1:
            middle = (common + beyond) // 2
            if _chain_digest_at(live, middle) == _chain_digest_at(copy, middle):
                common = middle
            else:
                beyond = middle
        return last, _Head(common, _chain_digest_at(live, common) or GENESIS)


def _last_position(connection: files.FileConnection) -> int:
    return int(connection.execute("SELECT coalesce(max(position), 0) FROM raw_events").fetchone()[0])


def _chain_digest_at(connection: files.FileConnection, position: int) -> str:
    row = connection.execute("SELECT chain_digest FROM raw_events WHERE position = ?", [position]).fetchone()
    return str(row[0]) if row else ""


def _require_replace(newer: int, *, replace: bool) -> None:
    if newer and not replace:
        raise ConflictError(
            f"the store has {counted(newer, 'event')} that the file lacks, and text erased since would return; "
            "add --replace to restore anyway: the current file is kept"
        )


def _require_replace_of_broken(error: files.DatabaseError, *, replace: bool) -> None:
    if faults.is_locked(error):
        raise error
    if not replace:
        raise ConflictError(f"can't read the store ({error}); add --replace to restore anyway: its file is kept")


# The process that has just committed may not have anchored its event yet, or may have died
def _await_anchor(store: StoreId, last: int) -> None:
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
    forget(store)
    shutil.rmtree(folder_of(store) / "index", ignore_errors=True)
    with use_store(store):
        if log.digest_at(head.position) != head.digest:
            raise Unavailable("another process changed the store during the restore; run restore again")
        replace_anchor(store, *log.head())  # a writer may have appended already
        forget_views()


@dataclass(frozen=True, slots=True)
class RestoredHub:
    previous_file: Path | None


def restore_hub(*, source: Path) -> RestoredHub:
    env.prepare_home()
    folder = backup_folder(None)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    previous = folder / f"{clock.file_stamp()}Z{BEFORE_RESTORE}"
    draft = folder / f".{previous.name}.{os.getpid()}.draft"
    try:
        files.copy_database(source, draft)
        files.make_single(draft)
        _require_hub(draft)
        return RestoredHub(_swap(draft, env.home() / "hub.db", previous))
    except OSError as error:
        raise Unavailable(f"can't restore hub.db ({error.strerror})") from error
    finally:
        files.remove_database(draft)
        _remove_oldest_kept(folder)


def _require_hub(draft: Path) -> None:
    problem = hub_problem(draft)
    if problem:
        kind = Unavailable if "damaged" in problem else Invalid
        raise kind(f"not a sound backup of hub.db: {problem}")


# Side files first: an old WAL must never meet the restored file
def _swap(draft: Path, target: Path, previous: Path) -> Path | None:
    there = os.path.lexists(target)
    move_database(target, previous)
    draft.rename(target)
    sync(target.parent)
    return previous if there else None


def _remove_oldest_kept(folder: Path) -> None:
    for path in sorted(folder.glob(f"*{BEFORE_RESTORE}"))[:-KEPT_BEFORE_RESTORE]:
        files.remove_database(path)
