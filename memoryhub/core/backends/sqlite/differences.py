"""Which rows of a table differ between a store and its copy: found, recorded, copied, digested."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from memoryhub.core.backends import differing
from memoryhub.core.backends.base import LIVE, Model
from memoryhub.core.backends.differing import Differing
from memoryhub.core.stores import rows

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
