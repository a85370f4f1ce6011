"""Find the log in a file whose header or schema SQLite can no longer read (decision 32)."""

# Header and schema only say where the table of events begins. Its root page can be found without them: it is a table
# page that no other page points to, and its rows start a chain of events. So a copy of the file gets a first page
# that declares this table alone. The chain and the anchor prove whether the result is the complete log. Page layout:
# "Database File Format", https://sqlite.org/fileformat2.html.

from __future__ import annotations

import shutil
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

from memoryhub.core.backends.sqlite.files import connect_immutable
from memoryhub.core.backends.sqlite.templates import template_path

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
        connection.execute(f"CREATE TABLE raw_events ({', '.join(_columns())})")
        connection.execute("PRAGMA writable_schema=ON")
        connection.execute("UPDATE sqlite_master SET rootpage = ?", [root])
    page = bytearray(first.read_bytes()[:_PAGE_BYTES])
    page[92:96] = bytes(4)  # makes SQLite ignore the number of pages in the header
    with path.open("r+b") as file:
        file.write(page)


def _columns() -> list[str]:
    with closing(connect_immutable(template_path())) as template:
        found = template.execute("SELECT name, type, pk FROM pragma_table_info('raw_events') ORDER BY cid").fetchall()
    return [f'"{name}" {kind}{" PRIMARY KEY" if key else ""}' for name, kind, key in found]
