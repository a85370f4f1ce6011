"""Databases beside a store: copies, their differences from it, repaired ones, and views of the past."""

from __future__ import annotations

import os
import shutil
import sqlite3
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from django.db import DatabaseError

from memoryhub import env
from memoryhub.core import clock
from memoryhub.core.backends import differing
from memoryhub.core.backends.base import LIVE, Model
from memoryhub.core.backends.differing import Differing
from memoryhub.core.backends.sqlite.faults import is_damage
from memoryhub.core.backends.sqlite.files import NAME, connect_immutable, connected, file_lock, path_of
from memoryhub.core.backends.sqlite.structure import copy_template, template_path
from memoryhub.core.stores import rows
from memoryhub.core.stores.routing import current_alias
from memoryhub.core.stores.store_id import StoreId, key_of


# The file has no name any more, so it disappears with this process
@contextmanager
def temporary_copy(store: StoreId) -> Iterator[None]:
    folder = draft_folder(store)
    try:
        copy_template(folder / NAME)
        with open_copy(folder / NAME):
            shutil.rmtree(folder)
            yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def attached(source: StoreId | Path, *, write: bool = False) -> Iterator[None]:
    path = path_of(source) if isinstance(source, StoreId) else source
    rows.execute(f"ATTACH DATABASE %s AS {LIVE}", [f"file:{quote(str(path))}?mode={'rw' if write else 'ro'}"])
    try:
        rows.execute(f"PRAGMA {LIVE}.synchronous=FULL")
        _prepare_again()
        yield
    finally:
        rows.execute(f"DETACH DATABASE {LIVE}")


def _prepare_again() -> None:
    # DETACH makes SQLite prepare every statement again, ATTACH does not. A BEGIN IMMEDIATE prepared before would lock
    # the copy only, and others could write to the store meanwhile.
    rows.execute("ATTACH DATABASE ':memory:' AS spare")
    rows.execute("DETACH DATABASE spare")


def allow_gaps() -> None:
    rows.execute("PRAGMA foreign_keys=OFF")
    rows.execute("DROP TRIGGER raw_events_no_gap")


_ALIAS = "store:view:being-made"
# An unfinished copy is thrown away, so it needs no protection against a crash.
_PRAGMAS = (
    "PRAGMA journal_mode=OFF",
    "PRAGMA synchronous=OFF",
    "PRAGMA cache_size=-32000",
)


def drafts_folder() -> Path:
    folder = env.prepare_home() / "cache" / "views"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def draft_folder(store: StoreId) -> Path:
    """Create an empty folder for a copy of ``store``; the caller removes it."""
    folder = drafts_folder() / f".draft-{key_of(store)}-{os.getpid()}-{time.monotonic_ns()}"
    folder.mkdir(mode=0o700)
    return folder


@contextmanager
def open_copy(path: Path) -> Iterator[None]:
    with connected(path, _ALIAS):
        token = current_alias.set(_ALIAS)
        try:
            for pragma in _PRAGMAS:
                rows.execute(pragma)
            yield
        finally:
            current_alias.reset(token)


_ROWS_AT_ONCE = 2000
_BEFORE_ALL = -(2**63)


def record_differing(model: Model) -> bool:
    table = _differing(model)
    for sql in _watch(table):
        rows.execute(sql)
    return table.find()


def recorded(model: Model, *, shown: int) -> tuple[int, tuple[str, ...]]:
    return _differing(model).recorded(shown=shown)


def apply_recorded(model: Model) -> None:
    table = _differing(model)
    page = f"SELECT {', '.join(table.key)} FROM {table.records} WHERE rowid > %s AND rowid <= %s"
    for bounds in _pages(table.records):
        table.delete_outdated(page, bounds)
    for bounds in _pages(table.records):
        table.insert_missing(page, bounds)


def _differing(model: Model) -> Differing:
    return Differing(model, database="temp", equals="IS")


def _watch(table: Differing) -> Iterator[str]:
    yield f"CREATE TEMP TABLE IF NOT EXISTS differing_{table.name} ({', '.join(table.key)})"
    for event, changed in (("INSERT", ("NEW",)), ("UPDATE", ("OLD", "NEW")), ("DELETE", ("OLD",))):
        note = [f"INSERT INTO differing_{table.name} VALUES ({table.keys(row)});" for row in changed]
        yield (
            f"CREATE TEMP TRIGGER IF NOT EXISTS note_{event}_{table.name} AFTER {event} "
            f'ON main."{table.name}" BEGIN {" ".join(note)} END'
        )


def replace_table(table: str) -> None:
    if not rows.fetch("SELECT 1 FROM main.sqlite_master WHERE name = %s", [table]):
        return
    copy = f'INSERT INTO {LIVE}."{table}" SELECT * FROM main."{table}"'
    rows.execute(f'DELETE FROM {LIVE}."{table}"')
    if rows.fetch("SELECT wr FROM pragma_table_list WHERE schema = 'main' AND name = %s", [table])[0][0]:
        # WITHOUT ROWID, so it has no pages; of the full-text index, only a small table is like that.
        rows.execute(copy)
        return
    for first, last in _pages(f'main."{table}"'):
        rows.execute(f"{copy} WHERE rowid > %s AND rowid <= %s", [first, last])


def _pages(table: str) -> Iterator[tuple[int, int]]:
    """Yield bounds of row ids for pages of rows: SQLite keeps the undo data of one statement in memory."""
    page = f"SELECT rowid AS id FROM {table} WHERE rowid > %s ORDER BY rowid LIMIT {_ROWS_AT_ONCE}"
    done = _BEFORE_ALL
    while (last := rows.fetch(f"SELECT max(id) FROM ({page})", [done])[0][0]) is not None:
        yield done, last
        done = last


def table_digest(model: Model, database: str) -> tuple[int, str]:
    return differing.table_digest(model, database, _texts)


# As bytes, because a damaged file may have texts that are not in UTF-8
def _texts(fields: list[Any]) -> str:
    columns = [f'"{field.column}"' for field in fields]
    values = [f"coalesce(length(CAST({column} AS BLOB)) || ':' || {column}, '-')" for column in columns]
    return f"CAST({' || '.join(values)} AS BLOB)"


# Header and schema only say where the table of events begins. Its root page can be found without them: it is a table
# page that no other page points to, and its rows start a chain of events. So a copy of the file gets a first page
# that declares this table alone. The chain and the anchor prove whether the result is the complete log. Page layout:
# "Database File Format", https://sqlite.org/fileformat2.html.


_HEADER_BYTES = 100
_PAGE_BYTES = 4096
_TABLE_INTERIOR, _TABLE_LEAF = 5, 13
_FIRST = "SELECT position, length(payload_digest), length(chain_digest) FROM raw_events ORDER BY position LIMIT 1"
# The first event of a chain: position 1, and two SHA-256 digests in hexadecimal.
_BEGINNING = (1, 64, 64)


def salvage(source: Path, folder: Path) -> Path | None:
    """Copy a damaged store into ``folder`` so that its table of events can be read; None if it is not found."""
    raw, merged = folder / "raw.db", folder / "salvaged.db"
    for end in ("", "-wal"):
        with suppress(FileNotFoundError):
            shutil.copyfile(f"{source}{end}", f"{raw}{end}")
    _mend_header(raw)
    with suppress(sqlite3.DatabaseError), closing(sqlite3.connect(raw)) as original:
        with closing(sqlite3.connect(merged)) as copy:
            original.backup(copy)
        return _with_root(merged)
    return None


def _mend_header(path: Path) -> None:
    header = bytearray(template_path().read_bytes()[:_HEADER_BYTES])
    header[24:48] = struct.pack(">6I", 1, 0, 0, 0, 0, 4)  # no size (SQLite counts pages), no free pages, format 4
    header[92:96] = bytes(4)
    with path.open("r+b") as file:
        file.write(header)


def _with_root(path: Path) -> Path | None:
    for root in _roots(path.read_bytes()):
        _write_first_page(path, root)
        with suppress(sqlite3.DatabaseError), closing(sqlite3.connect(path)) as connection:
            if connection.execute(_FIRST).fetchone() == _BEGINNING:
                return path
    return None


def _roots(content: bytes) -> Iterator[int]:
    kinds = {page: content[(page - 1) * _PAGE_BYTES] for page in range(2, len(content) // _PAGE_BYTES + 1)}
    children = {child for page, kind in kinds.items() if kind == _TABLE_INTERIOR for child in _children(content, page)}
    # Tables of several pages first: the log usually is one.
    for kind_of_root in (_TABLE_INTERIOR, _TABLE_LEAF):
        yield from (page for page, kind in kinds.items() if kind == kind_of_root and page not in children)


def _children(content: bytes, page: int) -> Iterator[int]:
    start = (page - 1) * _PAGE_BYTES
    (cells,) = struct.unpack_from(">H", content, start + 3)
    yield struct.unpack_from(">I", content, start + 8)[0]
    for index in range(min(cells, _PAGE_BYTES // 6)):
        (cell,) = struct.unpack_from(">H", content, start + 12 + 2 * index)
        if cell <= _PAGE_BYTES - 4:
            yield struct.unpack_from(">I", content, start + cell)[0]


def _write_first_page(path: Path, root: int) -> None:
    first = path.with_name("first.db")
    first.unlink(missing_ok=True)
    with closing(sqlite3.connect(first, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA page_size={_PAGE_BYTES}")
        connection.execute(f"CREATE TABLE raw_events ({', '.join(_event_columns())})")
        connection.execute("PRAGMA writable_schema=ON")
        connection.execute("UPDATE sqlite_master SET rootpage = ?", [root])
    page = bytearray(first.read_bytes()[:_PAGE_BYTES])
    page[92:96] = bytes(4)  # makes SQLite ignore the number of pages in the header
    with path.open("r+b") as file:
        file.write(page)


def _event_columns() -> list[str]:
    with closing(connect_immutable(template_path())) as template:
        found = template.execute("SELECT name, type, pk FROM pragma_table_info('raw_events') ORDER BY cid").fetchall()
    return [f'"{name}" {kind}{" PRIMARY KEY" if key else ""}' for name, kind, key in found]


# SQLite reads the table of events through that table's own pages if it is asked to skip malformed schema entries. So
# damage to a read model, an index, the full-text index or a free page leaves the log readable.


@contextmanager
def passing_over_damage() -> Iterator[None]:
    rows.execute("PRAGMA writable_schema=ON")
    try:
        yield
    finally:
        rows.execute("PRAGMA writable_schema=OFF")


@contextmanager
def salvaged(store: StoreId) -> Iterator[Path | None]:
    folder = draft_folder(store)
    try:
        yield salvage(path_of(store), folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def fresh(place: Path) -> Iterator[None]:
    copy_template(place)
    with open_copy(place):
        yield


def carry(table: str, columns: Sequence[str] = ()) -> None:
    # Lost rows can be computed again. Not inside a transaction: COMMIT fails after a read that met a damaged page.
    names = columns or _columns(table)
    listed, marks = ", ".join(f'"{name}"' for name in names), ", ".join(["%s"] * len(names))
    put = f'INSERT OR IGNORE INTO main."{table}" ({listed}) VALUES ({marks})'
    try:
        for row in rows.iterate(f'SELECT {listed} FROM {LIVE}."{table}" NOT INDEXED'):
            rows.execute(put, row)
    except DatabaseError as error:
        if not is_damage(error):
            raise


def _columns(table: str) -> list[str]:
    return [name for (name,) in rows.fetch("SELECT name FROM pragma_table_info(%s, 'main') ORDER BY cid", [table])]


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
