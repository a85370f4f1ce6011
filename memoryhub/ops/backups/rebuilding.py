"""Rebuild a store from its log: its read models, or the whole file if it is damaged."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from django.db import DatabaseError

from memoryhub.core import log
from memoryhub.core.backends.selected import faults, integrity, stores
from memoryhub.core.backends.sqlite import files, wiping
from memoryhub.core.backends.sqlite.copies import draft_folder
from memoryhub.core.backends.sqlite.files import path_of
from memoryhub.core.errors import Locked, Unavailable
from memoryhub.core.events.projection import finish_rebuild
from memoryhub.core.log.copy import ErasedMeanwhile
from memoryhub.core.log.rebuilding import FreshFile, RebuildReport, TableReport, readable_log
from memoryhub.core.stores.store import StoreId, folder_of, forget, use_store
from memoryhub.ops.backups.files import BEFORE_REBUILD, path_to_keep

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
    with _translated():
        return _rebuild(store, problem, progress)


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


def _rebuild(store: StoreId, problem: str, progress: Progress) -> Rebuilt:
    started = time.monotonic()
    previous = path_to_keep(store, BEFORE_REBUILD)
    for _ in range(_ATTEMPTS):
        with suppress(ErasedMeanwhile):
            tables = _attempt(store, previous, progress)
            events = _finish(store)
            return Rebuilt(RebuildReport(events, time.monotonic() - started, tables), problem, previous)
    raise Locked("events were erased during the rebuild; run rebuild again")


def _attempt(store: StoreId, previous: Path, progress: Progress) -> list[TableReport]:
    try:
        with draft_folder(store) as folder, readable_log(store) as source:
            draft = folder / "events.db"
            if source is None:
                raise Unavailable("can't rebuild the file: no log found in it")
            before = _file_state(store)
            with FreshFile.at(draft, store, source) as fresh:
                fresh.fill(progress)
                tables = fresh.compared()
                with stores.upgrading(store):
                    forget(store)
                    if source == store:
                        _put_in_place(store, draft, previous, fresh.finish)
                    else:
                        fresh.finish()
                        _put_in_place(store, draft, previous, lambda: _require_same(store, before))
        return tables
    except BaseException:
        files.remove_database(previous)  # nothing was replaced
        raise


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


def _require_same(store: StoreId, before: list[tuple[int, int, int]]) -> None:
    if _file_state(store) != before:
        raise ErasedMeanwhile


# Also removes what was made from the damaged file
def _finish(store: StoreId) -> int:
    shutil.rmtree(folder_of(store) / "index", ignore_errors=True)
    with use_store(store):
        problem = integrity.damage() or integrity.schema_problem()
        if problem:
            raise Unavailable(f"{problem}, in the file that was just rebuilt; the disk may be failing")
        finish_rebuild()
        position = log.head()[0]
    wiping.shorten(path_of(store))
    return position
