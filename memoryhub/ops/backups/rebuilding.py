"""Rebuilding a store from its log: its read models in place, or, where the file is damaged, a whole new file.

The pages of the new file replace those of the damaged one in one transaction, as a restore does it: other processes
that have the file open go on with it, and none can write into a file that has lost its name.
"""

from __future__ import annotations

import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from django.db import DatabaseError

from memoryhub.core import log
from memoryhub.core.errors import Locked, Unavailable
from memoryhub.core.events.projection import finish_rebuild
from memoryhub.core.log.damaged import FreshFile, readable_log
from memoryhub.core.log.rebuild import RebuildReport, TableReport
from memoryhub.core.log.replacing import ErasedMeanwhile
from memoryhub.core.log.views import draft_folder
from memoryhub.core.stores import wal
from memoryhub.core.stores.files import file_lock
from memoryhub.core.stores.integrity import damage, header_problem, is_damage, schema_problem
from memoryhub.core.stores.store import StoreId, forget, use_store
from memoryhub.ops.backups import copying
from memoryhub.ops.backups.copying import BEFORE_REBUILD, path_to_keep

_ATTEMPTS = 3
_LOCK_SECONDS = 60.0
# What SQLite says of a file of which a process that opens it can write no page.
_NOBODY_WRITES = ("not a database", "unsupported file format", "readonly")

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What was done."""

    report: RebuildReport
    problem: str = ""
    """What was wrong with the file, where a new one was built; then all tables were replaced."""
    kept: Path | None = None
    """The damaged file."""


def rebuild_store(*, store: StoreId, progress: Progress = lambda _: None, only: Sequence[str] = ()) -> Rebuilt:
    """Make a store's read models from its log; where its file is damaged, build the whole file from the log.

    Args:
        store: it need not be readable but for its log.
        progress: called with the number of events applied so far, about every 2,000.
        only: tables, or apps with all their tables, to replace in a file that is sound. Default: all.

    Raises:
        NotFound: there is no such store.
        Invalid: one of ``only`` is no read model.
        Unavailable: the log cannot be read whole, or its chain does not hold: a backup must be restored.
        Locked: another process held the store for too long, or events were erased time and again meanwhile.
    """
    problem = file_problem(store)
    if not problem:
        with use_store(store):
            return Rebuilt(log.rebuild(progress, only=only))
    with _translated():
        return _rebuild(store, problem, progress)


def file_problem(store: StoreId) -> str:
    """Return why a store's file must be built anew, "" where it need not be.

    Raises:
        NotFound: there is no such store.
        Unavailable: it cannot be opened for another reason than damage: it is gone, or a newer hub wrote it.
    """
    try:
        with use_store(store):
            return damage() or header_problem(store.path) or schema_problem()
    except Unavailable as error:
        if not is_damage(error.__cause__):
            raise
        return f"the file is damaged: {error.__cause__}"


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (DatabaseError, sqlite3.DatabaseError) as error:
        if "locked" in str(error):
            raise Locked("memory database is locked by another process") from error
        raise Unavailable(f"memory database unavailable: {error}") from error
    except OSError as error:
        raise Unavailable(f"the new file cannot be written ({error.strerror})") from error


def _rebuild(store: StoreId, problem: str, progress: Progress) -> Rebuilt:
    started = time.monotonic()
    kept = path_to_keep(store, BEFORE_REBUILD)
    for _ in range(_ATTEMPTS):
        with suppress(ErasedMeanwhile):
            tables = _attempt(store, kept, progress)
            events = _finish(store)
            return Rebuilt(RebuildReport(events, time.monotonic() - started, tables), problem, kept)
    raise Locked("events were erased while the file was built; run rebuild again")


def _attempt(store: StoreId, kept: Path, progress: Progress) -> list[TableReport]:
    folder = draft_folder(store)
    draft = folder / "events.db"
    try:
        with readable_log(store) as source:
            if source is None:
                raise Unavailable("the file cannot be built from its log: the log cannot be found in it")
            before = _state(store)
            with FreshFile.at(draft, store, source) as fresh:
                fresh.fill(progress)
                tables = fresh.compared()
                with file_lock(store.path.with_name("upgrade.lock"), timeout=_LOCK_SECONDS):
                    forget(store)
                    if source == store.path:
                        _put_in_place(store, draft, kept, fresh.finish)
                    else:
                        fresh.finish()
                        _put_in_place(store, draft, kept, lambda: _require_same(store, before))
        return tables
    except BaseException:
        copying.remove_database(kept)  # nothing was replaced
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _put_in_place(store: StoreId, draft: Path, kept: Path, finish: Callable[[], None]) -> None:
    """Replace the damaged file; ``finish`` is called under the store's write lock, as far as SQLite can give one."""

    def locked() -> None:
        finish()
        copying.keep_beside(store.path, kept)

    try:
        copying.overwrite(store.path, draft, locked=locked)
    except sqlite3.DatabaseError as error:
        if not any(sign in str(error) for sign in _NOBODY_WRITES):
            raise
        finish()
        copying.make_single(draft)
        copying.swap_broken(store.path, draft, kept)


def _state(store: StoreId) -> list[tuple[int, int, int]]:
    """Return what shows that a process has written to the store's files."""
    files = [store.path, store.path.with_name(f"{store.path.name}-wal")]
    found = [path.stat() for path in files if path.exists()]
    return [(each.st_ino, each.st_size, each.st_mtime_ns) for each in found if each.st_size]


def _require_same(store: StoreId, before: list[tuple[int, int, int]]) -> None:
    """Refuse where others have written to a file that was copied to be read; it must be copied once more then.

    Raises:
        ErasedMeanwhile: they have.
    """
    if _state(store) != before:
        raise ErasedMeanwhile


def _finish(store: StoreId) -> int:
    """Look at the store as it is now, drop what was made of the damaged file, and return its last position."""
    shutil.rmtree(store.path.with_name("index"), ignore_errors=True)
    with use_store(store):
        problem = damage() or schema_problem()
        if problem:
            raise Unavailable(f"{problem}, in the file that was just built; the disk may be failing")
        finish_rebuild()
        position = log.head()[0]
    wal.shorten(store.path)
    return position
