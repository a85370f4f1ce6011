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
from urllib.parse import quote

from django.db import DatabaseError

from memoryhub import env
from memoryhub.core import clock
from memoryhub.core.backends import differing
from memoryhub.core.backends.base import LIVE, Model
from memoryhub.core.backends.differing import Differing
from memoryhub.core.backends.sqlite.faults import is_damage
from memoryhub.core.backends.sqlite.files import NAME, file_lock, open_draft, open_immutable, path_of
from memoryhub.core.backends.sqlite.structure import template_path
from memoryhub.core.stores import rows
from memoryhub.core.stores.store_id import StoreId, key_of

_ALIAS = "store:view:being-made"
# Pages of rows that are copied with one statement
_ROWS_AT_ONCE = 2000
_BEFORE_ALL = -(2**63)
_VIEWS_LOCK_SECONDS = 60.0
_ABANDONED_SECONDS = 6 * 3600.0


# The file has no name any more, so it disappears with this process
@contextmanager
def temporary_copy(store: StoreId) -> Iterator[None]:
    with draft_folder(store) as folder, draft_at(folder / NAME):
        shutil.rmtree(folder)
        yield


@contextmanager
def attached(source: StoreId | Path, *, write: bool = False) -> Iterator[None]:
    path = path_of(source) if isinstance(source, StoreId) else source
    mode = "rw" if write else "ro"
    rows.execute(f"ATTACH DATABASE %s AS {LIVE}", [f"file:{quote(str(path))}?mode={mode}"])
    try:
        rows.execute(f"PRAGMA {LIVE}.synchronous=FULL")
        # DETACH makes SQLite prepare every statement again, ATTACH does not. A BEGIN IMMEDIATE prepared before would
        # lock the copy only, and others could write to the store meanwhile.
        rows.execute("ATTACH DATABASE ':memory:' AS spare")
        rows.execute("DETACH DATABASE spare")
        yield
    finally:
        rows.execute(f"DETACH DATABASE {LIVE}")


def allow_gaps() -> None:
    rows.execute("PRAGMA foreign_keys=OFF")
    rows.execute("DROP TRIGGER raw_events_no_gap")


def drafts_folder() -> Path:
    folder = env.prepare_home() / "cache" / "views"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


@contextmanager
def draft_folder(store: StoreId) -> Iterator[Path]:
    """Create an empty folder for a copy of ``store``, and remove it after the block."""
    folder = drafts_folder() / f".draft-{key_of(store)}-{os.getpid()}-{time.monotonic_ns()}"
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def draft_at(path: Path, *, like: Path | None = None) -> Iterator[None]:
    """Create a store, or a copy of one that nobody writes to, and make it current inside the block."""
    shutil.copyfile(like or template_path(), path)
    with open_draft(path, _ALIAS):
        yield


def record_differing(model: Model) -> bool:
    table = Differing(model)
    rows.execute(f"CREATE TEMP TABLE IF NOT EXISTS differing_{table.name} ({', '.join(table.key)})")
    for event, versions in (("INSERT", ("NEW",)), ("UPDATE", ("OLD", "NEW")), ("DELETE", ("OLD",))):
        notes = " ".join(f"INSERT INTO differing_{table.name} VALUES ({table.keys(row)});" for row in versions)
        rows.execute(
            f"CREATE TEMP TRIGGER IF NOT EXISTS note_{event}_{table.name} AFTER {event} "
            f'ON main."{table.name}" BEGIN {notes} END'
        )
    return table.find()


def apply_recorded(model: Model) -> None:
    table = Differing(model)
    page = f"SELECT {', '.join(table.key)} FROM {table.records} WHERE rowid > %s AND rowid <= %s"
    for bounds in _pages(table.records):
        table.delete_outdated(page, bounds)
    for bounds in _pages(table.records):
        table.insert_missing(page, bounds)


recorded = differing.recorded
table_digest = differing.table_digest


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
    first = _BEFORE_ALL
    while (last := rows.fetch(f"SELECT max(id) FROM ({page})", [first])[0][0]) is not None:
        yield first, last
        first = last


# Header and schema only say where the table of events begins. Its root page can be found without them: it is a table
# page that no other page points to, and its rows start a chain of events. So a copy of the file gets a first page
# that declares this table alone. The chain and the anchor prove whether the result is the complete log. Page layout:
# "Database File Format", https://sqlite.org/fileformat2.html.

_HEADER_BYTES = 100
_PAGE_BYTES = 4096
_TABLE_INTERIOR = 5
_TABLE_LEAF = 13
_EVENT_COLUMNS = (
    "SELECT group_concat(definition, ', ') FROM (SELECT '\"' || name || '\" ' || type "
    "|| CASE WHEN pk THEN ' PRIMARY KEY' ELSE '' END AS definition FROM pragma_table_info('raw_events') ORDER BY cid)"
)
_FIRST = "SELECT position, length(payload_digest), length(chain_digest) FROM raw_events ORDER BY position LIMIT 1"
# The first event of a chain: position 1, and two SHA-256 digests in hexadecimal.
_BEGINNING = (1, 64, 64)


@contextmanager
def salvaged(store: StoreId) -> Iterator[Path | None]:
    with draft_folder(store) as folder:
        raw, merged, readable = folder / "raw.db", folder / "salvaged.db", None
        for suffix in ("", "-wal"):
            with suppress(FileNotFoundError):
                shutil.copyfile(f"{path_of(store)}{suffix}", f"{raw}{suffix}")
        header = bytearray(template_path().read_bytes()[:_HEADER_BYTES])
        header[24:48] = struct.pack(">6I", 1, 0, 0, 0, 0, 4)  # no size (SQLite counts pages), no free pages, format 4
        header[92:96] = bytes(4)
        with raw.open("r+b") as file:
            file.write(header)
        with suppress(sqlite3.DatabaseError), closing(sqlite3.connect(raw)) as original:
            with closing(sqlite3.connect(merged)) as copy:
                original.backup(copy)
            readable = _with_root(merged)
        yield readable


def _with_root(path: Path) -> Path | None:
    for root in _roots(path.read_bytes()):
        _write_first_page(path, root)
        with suppress(sqlite3.DatabaseError), closing(sqlite3.connect(path)) as connection:
            if connection.execute(_FIRST).fetchone() == _BEGINNING:
                return path
    return None


def _roots(content: bytes) -> Iterator[int]:
    kinds = {page: content[(page - 1) * _PAGE_BYTES] for page in range(2, len(content) // _PAGE_BYTES + 1)}
    children: set[int] = set()
    for page, kind in kinds.items():
        if kind == _TABLE_INTERIOR:
            children.update(_children(content, page))
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
    with closing(open_immutable(template_path())) as template:
        columns = template.execute(_EVENT_COLUMNS).fetchone()[0]
    first = path.with_name("first.db")
    first.unlink(missing_ok=True)
    with closing(sqlite3.connect(first, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA page_size={_PAGE_BYTES}")
        connection.execute(f"CREATE TABLE raw_events ({columns})")
        connection.execute("PRAGMA writable_schema=ON")
        connection.execute("UPDATE sqlite_master SET rootpage = ?", [root])
    page = bytearray(first.read_bytes()[:_PAGE_BYTES])
    page[92:96] = bytes(4)  # makes SQLite ignore the number of pages in the header
    with path.open("r+b") as file:
        file.write(page)


# SQLite reads the table of events through that table's own pages if it is asked to skip malformed schema entries. So
# damage to a read model, an index, the full-text index or a free page leaves the log readable.
@contextmanager
def passing_over_damage() -> Iterator[None]:
    rows.execute("PRAGMA writable_schema=ON")
    try:
        yield
    finally:
        rows.execute("PRAGMA writable_schema=OFF")


def carry(table: str, columns: Sequence[str] = ()) -> None:
    """Copy the readable rows of an attached, damaged store's table into the current one; default: all columns."""
    # Lost rows can be computed again. Not inside a transaction: COMMIT fails after a read that met a damaged page.
    if not columns:
        columns = rows.column("SELECT name FROM pragma_table_info(%s, 'main') ORDER BY cid", [table])
    quoted = ", ".join(f'"{name}"' for name in columns)
    marks = ", ".join(["%s"] * len(columns))
    try:
        for row in rows.iterate(f'SELECT {quoted} FROM {LIVE}."{table}" NOT INDEXED'):
            rows.execute(f'INSERT OR IGNORE INTO main."{table}" ({quoted}) VALUES ({marks})', row)
    except DatabaseError as error:
        if not is_damage(error):
            raise


def view_names(store: StoreId, prefix: str = "") -> list[tuple[str, float]]:
    views = []
    for path in drafts_folder().glob(f"{prefix or key_of(store)}-*"):
        with suppress(FileNotFoundError):  # another process has just removed it
            views.append((path.name, path.stat().st_mtime))
    return views


def touch_view(view: StoreId) -> bool:
    try:
        os.utime(path_of(view).parent, ns=(clock.now_ns(),) * 2)
    except FileNotFoundError:
        return False
    return True


def make_view(
    view: StoreId, store: StoreId, *, like: str | None, fill: Callable[[], object], may_publish: Callable[[], bool]
) -> bool:
    with draft_folder(store) as folder, suppress(FileNotFoundError):  # an erasure removes the draft
        with draft_at(folder / NAME, like=drafts_folder() / like / NAME if like else None):
            fill()
        with _views_lock():
            if may_publish():
                if not path_of(view).exists():
                    folder.rename(path_of(view).parent)
                return True
    return False


def remove_views(names: Iterable[str]) -> None:
    for name in names:
        shutil.rmtree(drafts_folder() / name, ignore_errors=True)


def remove_dead_drafts(_store: StoreId) -> None:
    for path in drafts_folder().glob(".draft-*"):
        if abs(clock.now().timestamp() - path.stat().st_mtime) > _ABANDONED_SECONDS:
            shutil.rmtree(path, ignore_errors=True)


def forget_views(store: StoreId) -> None:
    with _views_lock():
        for pattern in (f"{key_of(store)}-*", f".draft-{key_of(store)}-*"):
            for path in drafts_folder().glob(pattern):
                shutil.rmtree(path, ignore_errors=True)


forget_views_early = forget_views


def forbid_writes() -> None:
    rows.execute("PRAGMA query_only=ON")


def _views_lock() -> AbstractContextManager[None]:
    return file_lock(drafts_folder() / "lock", timeout=_VIEWS_LOCK_SECONDS)
