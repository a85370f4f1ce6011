"""Read what a damaged file still has, and build a new one (decision 32)."""

# SQLite reads the table of events through that table's own pages if it is asked to skip malformed schema entries. So
# damage to a read model, an index, the full-text index or a free page leaves the log readable.

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from django.db import DatabaseError

from memoryhub.core.backends.base import LIVE
from memoryhub.core.backends.sqlite.drafts import draft_folder, open_copy
from memoryhub.core.backends.sqlite.faults import is_damage
from memoryhub.core.backends.sqlite.files import path_of
from memoryhub.core.backends.sqlite.salvage import salvage
from memoryhub.core.backends.sqlite.templates import copy_template
from memoryhub.core.stores import rows
from memoryhub.core.stores.store_id import StoreId


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
