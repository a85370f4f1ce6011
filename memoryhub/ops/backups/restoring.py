"""Put a store's file in place: from a backup, or made from the log of a damaged one; and the hub's own tables."""

from __future__ import annotations

import os
import shutil
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from django.db import DatabaseError, connections, transaction

from memoryhub import env
from memoryhub.core import clock, log
from memoryhub.core.backends.base import HERE, LIVE, Model, Source
from memoryhub.core.backends.selected import anchors, differences, faults, integrity, machines, repair, scratch, stores
from memoryhub.core.backends.sqlite import files, wiping
from memoryhub.core.backends.sqlite.copies import carry, draft_at, draft_folder
from memoryhub.core.backends.sqlite.files import move_database, path_of
from memoryhub.core.disk import make_folder, sync
from memoryhub.core.errors import ConflictError, Invalid, Locked, Unavailable
from memoryhub.core.events.projection import finish_rebuild, models_beside_log, read_models, text_caches
from memoryhub.core.log.anchor import read_anchor, replace_anchor
from memoryhub.core.log.chain import check_links
from memoryhub.core.log.copy import ErasedMeanwhile, StoreDraft
from memoryhub.core.log.digests import GENESIS
from memoryhub.core.log.rebuilding import RebuildReport, TableReport, readable_log
from memoryhub.core.log.views import forget_views
from memoryhub.core.stores import schema
from memoryhub.core.stores.routing import require_current_alias
from memoryhub.core.stores.store import StoreId, folder_of, forget, require_stayed, use_store
from memoryhub.core.text import counted
from memoryhub.ops.backups.service import (
    BEFORE_REBUILD,
    BEFORE_RESTORE,
    KEPT_BEFORE_RESTORE,
    backup_folder,
    draft_of,
    hub_problem,
    path_to_keep,
    require_sound,
)

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
    draft = draft_of(previous)
    try:
        files.copy_database(source, draft)
        position, digest = _prepared(draft, store, source)
        files.make_single(draft)
        make_folder(path_of(store).parent)
        with stores.upgrading(store):
            anchored = _anchored(store)
            path, undone = _put_back(store, draft, previous, replace=replace)
            forget(store)
            shutil.rmtree(folder_of(store) / "index", ignore_errors=True)
            with use_store(store):
                if log.digest_at(position) != digest:
                    raise Unavailable("another process changed the store during the restore; run restore again")
                replace_anchor(store, *log.head())  # a writer may have appended already
                forget_views()
    finally:
        files.remove_database(draft)
    return Restored(position, path, undone, lost=max(0, anchored - position - undone))


# Returns the head of its log. Errors name ``source``, not the draft
def _prepared(draft: Path, store: StoreId, source: Path) -> tuple[int, str]:
    _require_store(draft, source)
    try:
        with files.opened(draft):
            event = log.events().exclude(project_id=store.name).first()
            if event:
                raise Invalid(f"{source} is a backup of {event.project_id!r}, not of {store.name!r}; restore it there")
            if schema.stored_fingerprint(connections[require_current_alias()]) != schema.fingerprint():
                schema.migrate(connections[require_current_alias()])
            require_sound()
            return log.head()
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


def _put_back(store: StoreId, draft: Path, previous: Path, *, replace: bool) -> tuple[Path | None, int]:
    try:
        if path_of(store).is_symlink():
            return _replace_link(store, draft, previous, replace=replace)
        # An empty file has no header and so is not in WAL mode: the backup's lock would exclude our own reader
        if not path_of(store).exists() or (path_of(store).is_file() and not path_of(store).stat().st_size):
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
    last, common, _ = _last_and_common(store, draft)
    _require_replace(last - common, replace=replace)
    files.copy_database(path_of(store), previous)
    files.make_single(previous)
    path_of(store).unlink()
    _put_new(store, draft)
    return previous, last - common


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
    newer = 0

    def look() -> None:
        nonlocal newer
        require_stayed(store)  # a move may have ended since, and its mark is in the file that is replaced
        try:
            last, common, digest = _last_and_common(store, draft)
        except files.DatabaseError as error:
            _require_replace_of_broken(error, replace=replace)
            files.keep_beside(path_of(store), previous)
            anchors.remove(store)
            return
        newer = last - common
        _require_replace(newer, replace=replace)
        files.keep_beside(path_of(store), previous)
        # The process that has just committed may not have anchored its event yet, or may have died
        deadline = time.monotonic() + _LATE_SECONDS
        while 0 < _anchored(store) < last and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        # Just before the commit; ``restore`` sets the new head after it
        replace_anchor(store, common, digest)

    files.overwrite(path_of(store), draft, locked=look)
    return newer


# The store's last position, and position and digest of the last event in common with the draft, found by bisection
def _last_and_common(store: StoreId, draft: Path) -> tuple[int, int, str]:
    with closing(files.open_database(path_of(store), mode="rw")) as live, closing(files.open_database(draft)) as copy:
        last = _last_position(live)

        def differs(position: int) -> bool:
            return _chain_digest_at(live, position) != _chain_digest_at(copy, position)

        common = bisect_left(range(1, min(last, _last_position(copy)) + 1), True, key=differs)
        return last, common, _chain_digest_at(live, common) or GENESIS


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


def _anchored(store: StoreId) -> int:
    try:
        anchor = read_anchor(store)
    except ValueError:
        return 0
    return anchor.position if anchor else 0


def restore_hub(*, source: Path) -> Path | None:
    """Restore the hub's own tables; return the replaced file, or None if there was none."""
    env.prepare_home()
    folder = backup_folder(None)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    previous = folder / f"{clock.file_stamp()}Z{BEFORE_RESTORE}"
    draft = draft_of(previous)
    try:
        files.copy_database(source, draft)
        files.make_single(draft)
        problem = hub_problem(draft)
        if problem:
            kind = Unavailable if "damaged" in problem else Invalid
            raise kind(f"not a sound backup of hub.db: {problem}")
        target = env.home() / "hub.db"
        is_replaced = os.path.lexists(target)
        # Side files first: an old WAL must never meet the restored file
        move_database(target, previous)
        draft.rename(target)
        sync(target.parent)
        return previous if is_replaced else None
    except OSError as error:
        raise Unavailable(f"can't restore hub.db ({error.strerror})") from error
    finally:
        files.remove_database(draft)
        for path in sorted(folder.glob(f"*{BEFORE_RESTORE}"))[:-KEPT_BEFORE_RESTORE]:
            files.remove_database(path)


_ATTEMPTS = 3
# SQLite's errors for files that no process can write to
_NOBODY_WRITES = ("not a database", "unsupported file format", "readonly")

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Rebuilt:
    report: RebuildReport
    # Why the whole file was rebuilt; "" otherwise
    problem: str = ""
    # The damaged file
    previous_file: Path | None = None


def rebuild_store(*, store: StoreId, progress: Progress = lambda _: None, only: Sequence[str] = ()) -> Rebuilt:
    """Rebuild a store's read models from its log; if its file is damaged, rebuild the whole file.

    Args:
        store: only its log needs to be readable.
        progress: called with the number of applied events, about every 2,000.
        only: tables or apps to replace in a sound file; default: all.

    Raises:
        NotFound: there is no such store.
        Invalid: one of ``only`` is not a read model.
        Unavailable: the log can't be read or its chain is broken; restore a backup.
        Locked: another process held the store for too long, or kept erasing events.
    """
    problem = file_problem(store)
    if not problem:
        with use_store(store):
            return Rebuilt(log.rebuild(progress, only=only))
    if machines.SHARED:
        raise Unavailable(f"{problem}; a store in PostgreSQL is repaired by the server's own backups")
    started = time.monotonic()
    with _translated():
        previous = path_to_keep(store, BEFORE_REBUILD)
        for _ in range(_ATTEMPTS):
            with suppress(ErasedMeanwhile):
                tables = _rebuild_file(store, previous, progress)
                events = _finish_rebuild(store)
                return Rebuilt(RebuildReport(events, time.monotonic() - started, tables), problem, previous)
    raise Locked("events were erased during the rebuild; run rebuild again")


# "" if the file is sound
def file_problem(store: StoreId) -> str:
    try:
        with use_store(store):
            return integrity.damage() or integrity.header_problem(store) or integrity.schema_problem()
    except Unavailable as error:
        if not faults.is_damage(error.__cause__):
            raise
        return f"the file is damaged: {error.__cause__}"


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (DatabaseError, files.DatabaseError) as error:
        if faults.is_locked(error):
            raise Locked("memory database is locked by another process") from error
        raise Unavailable(f"memory database unavailable: {error}") from error
    except OSError as error:
        raise Unavailable(f"can't write the new file ({error.strerror})") from error


def _rebuild_file(store: StoreId, previous: Path, progress: Progress) -> list[TableReport]:
    try:
        with draft_folder(store) as folder, readable_log(store) as source:
            draft = folder / "events.db"
            if source is None:
                raise Unavailable("can't rebuild the file: no log found in it")
            before = _file_state(store)
            with draft_at(draft), repair.passing_over_damage():
                fresh = _FreshFile(store, source)
                fresh.fill(progress)
                tables = fresh.compare()
                with stores.upgrading(store):
                    forget(store)
                    if source == store:
                        _put_in_place(store, draft, previous, fresh.finish)
                    else:
                        fresh.finish()

                        def require_same() -> None:
                            if _file_state(store) != before:
                                raise ErasedMeanwhile

                        _put_in_place(store, draft, previous, require_same)
        return tables
    except BaseException:
        files.remove_database(previous)  # nothing was replaced
        raise


# Stands for the digest of a table that could not be read
UNREADABLE = "unreadable"


class _FreshFile(StoreDraft):
    def __init__(self, store: StoreId, source: Source) -> None:
        super().__init__(source)
        self._store = store

    def fill(self, progress: Progress = lambda _: None, *, up_to: int | None = None) -> None:
        with scratch.attached(self._source):
            verification = log.verify(of=self._store, database=LIVE)
        if not verification.ok:
            raise Unavailable(f"the file cannot be built from its log: {verification.describe()}")
        super().fill(progress, up_to=up_to)
        with scratch.attached(self._source):
            for table in text_caches:
                carry(table)

    def _take_late(self) -> int:
        last = log.head()[0]
        count = super()._take_late()
        for position, flaw in check_links(first=last + 1, last=log.head()[0]).items():
            if flaw:
                raise Unavailable(f"the file cannot be built from its log: #{position}: {flaw}")
        return count

    def finish(self) -> None:
        """Copy the last events and all data that is not in the log; requires the store's write lock."""
        self.catch_up()
        with scratch.attached(self._source):
            for model in models_beside_log():
                if model._meta.db_table not in text_caches:
                    carry(model._meta.db_table)
            carry("store_meta", schema.META_COLUMNS)

    def compare(self) -> list[TableReport]:
        alias = require_current_alias()
        # The two are compared again if other writers moved the log between the reads
        for _ in range(_ATTEMPTS):
            self.catch_up()
            with scratch.attached(self._source), transaction.atomic(using=alias):
                tables = [_compared(model) for model in read_models()]
                is_level = log.head(LIVE) == log.head()
                transaction.set_rollback(True, using=alias)  # a COMMIT fails after a read that met a damaged page
            if is_level:
                break
        return tables


def _compared(model: Model) -> TableReport:
    count, after = differences.table_digest(model, HERE)
    try:
        _, before = differences.table_digest(model, LIVE)
    except DatabaseError as error:
        if not faults.is_damage(error):
            raise
        before = UNREADABLE
    return TableReport(model._meta.db_table, count, before, after, replaced=True)


# ``finish`` runs under the store's write lock, as far as a damaged file allows one (decision 32)
def _put_in_place(store: StoreId, draft: Path, previous: Path, finish: Callable[[], None]) -> None:
    def locked() -> None:
        finish()
        files.keep_beside(path_of(store), previous)

    try:
        files.overwrite(path_of(store), draft, locked=locked)
    except files.DatabaseError as error:
        if not any(sign in str(error) for sign in _NOBODY_WRITES):
            raise
        finish()
        files.make_single(draft)
        files.swap_broken(path_of(store), draft, previous)


# Changes when a process writes to the store's files
def _file_state(store: StoreId) -> list[tuple[int, int, int]]:
    paths = [path_of(store), path_of(store).with_name(f"{path_of(store).name}-wal")]
    statuses = [path.stat() for path in paths if path.exists()]
    return [(status.st_ino, status.st_size, status.st_mtime_ns) for status in statuses if status.st_size]


# Also removes what was made from the damaged file
def _finish_rebuild(store: StoreId) -> int:
    shutil.rmtree(folder_of(store) / "index", ignore_errors=True)
    with use_store(store):
        problem = integrity.damage() or integrity.schema_problem()
        if problem:
            raise Unavailable(f"{problem}, in the file that was just rebuilt; the disk may be failing")
        finish_rebuild()
        position = log.head()[0]
    wiping.shorten(path_of(store))
    return position
