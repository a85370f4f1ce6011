"""Which rows of a table differ between a store and its copy: found, recorded, copied, digested."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from django.db import models

from memoryhub.core.backends.base import LIVE
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import columns_of

Model = type[models.Model]

_ROWS_AT_ONCE = 2000
_BEFORE_ALL = -(2**63)


def note_differing(model: Model) -> bool:
    table = _Table(model)
    for sql in table.watch():
        rows.execute(sql)
    # Rows that are missing or different in the copy, then rows that only the copy has.
    rows.execute(f"DELETE FROM {table.noted}")
    rows.execute(
        f'INSERT INTO {table.noted} SELECT {table.keys("l")} FROM {LIVE}."{table.name}" AS l WHERE NOT EXISTS '
        f'(SELECT 1 FROM main."{table.name}" AS m WHERE {table.same_key} AND {table.same_row})'
    )
    rows.execute(
        f'INSERT INTO {table.noted} SELECT {table.keys("m")} FROM main."{table.name}" AS m WHERE NOT EXISTS '
        f'(SELECT 1 FROM {LIVE}."{table.name}" AS l WHERE {table.same_key})'
    )
    return bool(rows.fetch(f"SELECT 1 FROM {table.noted} LIMIT 1"))


def put_noted(model: Model) -> None:
    table = _Table(model)
    for first, last in _pages(table.noted):
        # Deletes all outdated rows before any insert: a new row may reuse a unique value of an old one.
        rows.execute(
            f'DELETE FROM {LIVE}."{table.name}" AS l WHERE ({table.keys("l")}) IN {table.page} AND NOT EXISTS '
            f'(SELECT 1 FROM main."{table.name}" AS m WHERE {table.same_key} AND {table.same_row})',
            [first, last],
        )
    for first, last in _pages(table.noted):
        rows.execute(
            f'INSERT INTO {LIVE}."{table.name}" ({table.columns}) SELECT {table.columns} FROM main."{table.name}" AS m '
            f"WHERE ({table.keys('m')}) IN {table.page} AND NOT EXISTS "
            f'(SELECT 1 FROM {LIVE}."{table.name}" AS l WHERE {table.same_key})',
            [first, last],
        )


class _Table:
    def __init__(self, model: Model) -> None:
        names = [f'"{field.column}"' for field in model._meta.local_concrete_fields]
        self.name, self._key = model._meta.db_table, [f'"{field.column}"' for field in model._meta.pk_fields]
        self.columns = ", ".join(names)
        self.same_key = " AND ".join(f"l.{name} = m.{name}" for name in self._key)
        self.same_row = f"({columns_of('l', names)}) IS ({columns_of('m', names)})"
        self.noted = f'temp."differing_{self.name}"'
        self.page = f"(SELECT {', '.join(self._key)} FROM {self.noted} WHERE rowid > %s AND rowid <= %s)"

    def keys(self, row: str) -> str:
        return columns_of(row, self._key)

    def watch(self) -> Iterator[str]:
        key = ", ".join(self._key)
        yield f"CREATE TEMP TABLE IF NOT EXISTS differing_{self.name} ({key})"
        for event, changed in (("INSERT", ("NEW",)), ("UPDATE", ("OLD", "NEW")), ("DELETE", ("OLD",))):
            note = [f"INSERT INTO differing_{self.name} VALUES ({self.keys(row)});" for row in changed]
            yield (
                f"CREATE TEMP TRIGGER IF NOT EXISTS note_{event}_{self.name} AFTER {event} "
                f'ON main."{self.name}" BEGIN {" ".join(note)} END'
            )


def noted(model: Model, *, shown: int) -> tuple[int, tuple[str, ...]]:
    table = _Table(model)
    key = " || '/' || ".join(f'"{field.column}"' for field in model._meta.pk_fields)
    count = rows.fetch(f"SELECT count(*) FROM {table.noted}")[0][0]
    found = rows.fetch(f"SELECT {key} FROM {table.noted} ORDER BY 1 LIMIT {shown}")
    return count, tuple(str(value) for (value,) in found)


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
    # SQLite concatenates each value with its length; converting rows to Python values takes several times as long.
    columns = [f'"{field.column}"' for field in model._meta.local_concrete_fields]
    values = [f"coalesce(length(CAST({column} AS BLOB)) || ':' || {column}, '-')" for column in columns]
    key = ", ".join(f'"{field.column}"' for field in model._meta.pk_fields)
    row = f"CAST({' || '.join(values)} AS BLOB)"
    digest, count = hashlib.sha256(), 0
    for (value,) in rows.iterate(f'SELECT {row} FROM {database}."{model._meta.db_table}" ORDER BY {key}'):
        digest.update(value)
        count += 1
    return count, digest.hexdigest()
