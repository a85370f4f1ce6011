"""Which page of a SQLite file belongs to what, so that a test can damage one; not every SQLite has ``dbstat``."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

SIZE = 4096
SCHEMA = "the schema"
FREE_TRUNK = "list of free pages"
FREE_LEAF = "free page"
_INTERIOR = (2, 5)
_TABLE_LEAF = 13
# Of a page of 4096 bytes; see "B-tree Pages" in SQLite's file format.
_MOST_LOCAL = {_TABLE_LEAF: SIZE - 35, 2: (SIZE - 12) * 64 // 255 - 23, 10: (SIZE - 12) * 64 // 255 - 23}
_LEAST_LOCAL = (SIZE - 12) * 32 // 255 - 23


def page_map(path: Path) -> dict[str, list[int]]:
    """Return the pages of every table and index, of the schema, and those that are free; overflow pages included."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        roots = connection.execute("SELECT name, rootpage FROM sqlite_master WHERE rootpage > 0").fetchall()
    file = path.read_bytes()
    found = {name: list(_tree(file, root)) for name, root in roots}
    trunks, leaves = _free(file)
    return {**found, SCHEMA: list(_tree(file, 1)), FREE_TRUNK: trunks, FREE_LEAF: leaves}


def damage_page(path: Path, page: int) -> None:
    file = path.read_bytes()
    at = (page - 1) * SIZE
    path.write_bytes(file[:at] + bytes(byte ^ 0xFF for byte in file[at : at + SIZE]) + file[at + SIZE :])


def _tree(file: bytes, page: int) -> Iterator[int]:
    yield page
    start = (page - 1) * SIZE
    header = start + (100 if page == 1 else 0)
    kind, cells = file[header], _number(file, header + 3, 2)
    pointers = header + (12 if kind in _INTERIOR else 8)
    for index in range(cells):
        cell = start + _number(file, pointers + 2 * index, 2)
        if kind in _INTERIOR:
            yield from _tree(file, _number(file, cell, 4))
        yield from _overflow(file, kind, cell)
    if kind in _INTERIOR:
        yield from _tree(file, _number(file, header + 8, 4))


def _overflow(file: bytes, kind: int, cell: int) -> Iterator[int]:
    if kind not in _MOST_LOCAL:
        return
    size, at = _varint(file, cell + (4 if kind in _INTERIOR else 0))
    if kind == _TABLE_LEAF:
        _, at = _varint(file, at)
    if size <= _MOST_LOCAL[kind]:
        return
    local = _LEAST_LOCAL + (size - _LEAST_LOCAL) % (SIZE - 4)
    page = _number(file, at + (local if local <= _MOST_LOCAL[kind] else _LEAST_LOCAL), 4)
    while page:
        yield page
        page = _number(file, (page - 1) * SIZE, 4)


def _free(file: bytes) -> tuple[list[int], list[int]]:
    trunks, leaves = [], []
    trunk = _number(file, 32, 4)
    while trunk:
        trunks.append(trunk)
        at = (trunk - 1) * SIZE
        leaves += [_number(file, at + 8 + 4 * index, 4) for index in range(_number(file, at + 4, 4))]
        trunk = _number(file, at, 4)
    return trunks, leaves


def _number(file: bytes, at: int, size: int) -> int:
    return int.from_bytes(file[at : at + size])


def _varint(file: bytes, at: int) -> tuple[int, int]:
    value = 0
    for _ in range(8):
        byte = file[at]
        at += 1
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at
    return value << 8 | file[at], at + 1
