"""Read the SQLite databases of other tools, which may be running, without writing beside them."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, count, groupby
from pathlib import Path
from typing import Any

from memoryhub.core.errors import Invalid
from memoryhub.core.foreign_files import open_foreign
from memoryhub.core.text import flat
from memoryhub.transfer.records import LeftOutRecord
from memoryhub.transfer.sources.reading import SQLITE, text_of

# The most that is copied of a database with a write-ahead log
MAX_COPY = 2**30
# Bytes of a value; SQLite allows a gigabyte. ``octet_length``, since 3.43, does not read the value
_MAX_VALUE = 8 * 2**20
_SIZE = 'octet_length("{0}")' if sqlite3.sqlite_version_info >= (3, 43) else 'length(CAST("{0}" AS BLOB))'
_VALUE = f'CASE WHEN {_SIZE} <= {_MAX_VALUE} THEN "{{0}}" END'
# Rows of one group, and their characters
MAX_GROUP = 10_000
MAX_CHARACTERS = 16 * 2**20
# Bytes; see https://sqlite.org/fileformat2.html
_HEADER = 100
# Keys that are listed, and a million steps of SQLite's for all statements together
_MAX_KEYS, _MAX_STEPS = 1_000_000, 2_000
Row = Mapping[str, Any]


class Database:
    """A database that is read; its schema is not trusted."""

    def __init__(self, connection: sqlite3.Connection, path: Path, columns: Mapping[str, frozenset[str]]) -> None:
        self._connection = connection
        self._path = path
        # The columns of each table that was asked for and is there
        self.columns = columns

    def rows(
        self, table: str, names: Sequence[str], *, order: str = "rowid", equals: tuple[str, str] | None = None
    ) -> Iterator[dict[str, Any]]:
        """Yield the rows of a table with the given columns; those that it lacks are None, and so are huge values.

        Text that is no UTF-8 has replacement characters.

        Args:
            table: one of those that the database was opened with.
            names: of the columns.
            order: columns to sort by.
            equals: a column, which the table must have, and its value in the rows.

        Raises:
            Invalid: the database is damaged.
        """
        columns = self.columns[table]
        selected = ", ".join(_VALUE.format(name) if name in columns else "NULL" for name in names)
        try:
            # Sorted without their values, and read one at a time: a few values fill the memory
            condition, values = (f'WHERE "{equals[0]}" = ?', [equals[1]]) if equals else ("", [])
            ordered = self._connection.execute(f'SELECT rowid FROM "{table}" {condition} ORDER BY {order}', values)
            for number in list(chain.from_iterable(ordered)):
                row = self._connection.execute(f'SELECT {selected} FROM "{table}" WHERE rowid = ?', [number]).fetchone()
                yield dict(zip(names, row, strict=True))
        except (sqlite3.Error, UnicodeError) as error:
            raise _damaged(self._path, error) from error

    def keys(self, table: str, prefix: str) -> Iterator[tuple[str, int]]:
        """Yield the keys that begin with ``prefix`` and the bytes of their values, from a table of keys and values.

        Raises:
            Invalid: the database is damaged.
        """
        statement = (
            f'SELECT "key", {_SIZE.format("value")} FROM "{table}" '
            f'WHERE "key" >= ? AND "key" < ? ORDER BY "key" LIMIT {_MAX_KEYS}'
        )
        try:
            for key, size in self._connection.execute(statement, [prefix, f"{prefix[:-1]}{chr(ord(prefix[-1]) + 1)}"]):
                yield key, size or 0
        except (sqlite3.Error, UnicodeError) as error:
            raise _damaged(self._path, error) from error

    def value(self, table: str, key: str, *, column: str = "value", by: str = "key") -> Any:
        """Return the value of a key; None if there is none, or a huge one.

        Raises:
            Invalid: the database is damaged.
        """
        statement = f'SELECT {_VALUE.format(column)} FROM "{table}" WHERE "{by}" = ? LIMIT 1'
        try:
            row = self._connection.execute(statement, [key]).fetchone()
        except (sqlite3.Error, UnicodeError) as error:
            raise _damaged(self._path, error) from error
        return row[0] if row else None


@contextmanager
def open_database(
    path: Path,
    tool: str,
    tables: Mapping[str, Sequence[str]],
    *,
    optional: Sequence[str] = (),
    by_key: Sequence[str] = (),
) -> Iterator[Database]:
    """Open a tool's database to read it.

    Args:
        path: the file; it and the folder stay as they are.
        tool: the name of the tool, for messages.
        tables: that the database must have, with the columns that they must have.
        optional: tables that versions of the tool lack.
        by_key: tables of which only keys and values are read. They are not checked as a whole, and a database with
            such tables is not copied while its tool is running.

    Raises:
        Invalid: it cannot be read, or is no database of this tool.
    """
    _require_sqlite(path, tool)
    with _stable(path, may_be_shared=bool(by_key)) as (place, mode):
        connection = sqlite3.connect(f"{place.absolute().as_uri()}?{mode}", uri=True, check_same_thread=False)
        if by_key:
            steps = count()
            connection.set_progress_handler(lambda: next(steps) > _MAX_STEPS, 1_000_000)
        try:
            yield _check_database(connection, path, tool, tables, optional=optional, by_key=by_key)
        finally:
            connection.close()


def _check_database(
    connection: sqlite3.Connection,
    path: Path,
    tool: str,
    tables: Mapping[str, Sequence[str]],
    *,
    optional: Sequence[str],
    by_key: Sequence[str],
) -> Database:
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    connection.set_authorizer(_only_reads)
    try:
        for setting in ("trusted_schema = OFF", "cell_size_check = ON", "ignore_check_constraints = ON"):
            connection.execute(f"PRAGMA {setting}")
        # A view of the name could compute for ever, and a virtual table runs a module
        existing = set(chain.from_iterable(connection.execute(_TABLES)))
        missing = [name for name in tables if name not in existing]
        if missing:
            raise Invalid(f"{flat(str(path))} is no database of {tool}: it has no table {missing[0]}")
        columns = {name: _columns_of(connection, name) for name in (*tables, *optional) if name in existing}
        lacking = [(table, name) for table, names in tables.items() for name in names if name not in columns[table]]
        if lacking:
            table, name = lacking[0]
            raise Invalid(f"{flat(str(path))} is no database of {tool}: its table {table} has no column {name}")
        # Pages that are used twice can make a small file hold endless rows
        for table in (name for name in columns if name not in by_key):
            ((verdict,),) = connection.execute(f"PRAGMA quick_check('{table}')").fetchmany(1)
            if verdict != "ok":
                reason = flat(str(verdict)).removeprefix("*** in database main *** ")[:100]
                raise Invalid(f"can't read {flat(str(path))}: its table {table} is damaged: {reason}")
    except (sqlite3.Error, UnicodeError) as error:
        raise _damaged(path, error) from error
    return Database(connection, path, columns)


_TABLES = "SELECT name FROM sqlite_schema WHERE type = 'table' AND rootpage > 0"


def _columns_of(connection: sqlite3.Connection, table: str) -> frozenset[str]:
    # Not generated ones, whose expressions are not trusted, and none that poses as SQLite's number of the row
    columns = connection.execute(f'PRAGMA table_xinfo("{table}")').fetchall()
    computed = [name for _, name, *_, hidden in columns if hidden or name.lower() == "rowid"]
    if computed:
        raise sqlite3.DatabaseError(f"table {table} has a computed column {flat(computed[0])[:80]}")
    return frozenset(name for _, name, *_ in columns)


_READING = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_PRAGMA}


def _only_reads(action: int, _: str | None, function: str | None, *__: str | None) -> int:
    if action in _READING or (action == sqlite3.SQLITE_FUNCTION and function in ("length", "octet_length")):
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY


def _require_sqlite(path: Path, tool: str) -> None:
    try:
        if not path.is_file():
            raise Invalid(f"{flat(str(path))} is not a file; name the database of {tool}")
        with os.fdopen(open_foreign(path), "rb") as file:
            head = file.read(_HEADER)
            size = os.fstat(file.fileno()).st_size
    except OSError as error:
        raise Invalid(f"can't read {flat(str(path))}: {error.strerror}") from error
    if len(head) < _HEADER or not head.startswith(SQLITE):
        raise Invalid(f"{flat(str(path))} is no SQLite database")
    page, pages = int.from_bytes(head[16:18]), int.from_bytes(head[28:32])
    # SQLite reads what is missing of a page as zeros
    if head[24:28] == head[92:96] and size < pages * (65_536 if page == 1 else page):
        raise Invalid(f"{flat(str(path))} is cut off: {size:,} bytes are not the whole database")


# A database with a write-ahead log is read from a copy: to read the log, SQLite writes beside it. While its tool is
# running, SQLite can share the tool's index of the log, and then writes nothing
@contextmanager
def _stable(path: Path, *, may_be_shared: bool) -> Iterator[tuple[Path, str]]:
    log = path.with_name(f"{path.name}-wal")
    if log.is_symlink() or not log.is_file() or log.stat().st_size == 0:
        # A database that nobody writes can be read without locks, which SQLite keeps in files
        yield path, "mode=ro&immutable=1"
        return
    index = path.with_name(f"{path.name}-shm")
    if may_be_shared and index.is_file() and not index.is_symlink():
        yield path, "mode=ro&readonly_shm=1"
        return
    if path.stat().st_size + log.stat().st_size > MAX_COPY:
        raise Invalid(f"{flat(str(path))} is in use and larger than {MAX_COPY // 2**30} GB; end its tool first")
    with tempfile.TemporaryDirectory(prefix="memory-hub-") as folder:
        copy = Path(folder) / "copy.db"
        try:
            shutil.copyfile(path, copy)
            shutil.copyfile(log, copy.with_name("copy.db-wal"))
        except OSError as error:
            raise Invalid(f"can't copy {flat(str(path))}: {error.strerror}") from error
        yield copy, "mode=ro"


def _damaged(path: Path, error: Exception) -> Invalid:
    return Invalid(f"can't read {flat(str(path))}: {error}")


@dataclass(slots=True)
class RowGroup:
    """Rows that belong to another one, as many as a session may have."""

    rows: list[Row] = field(default_factory=list)
    characters: int = 0
    # Rows after them
    beyond: int = 0

    def add(self, row: Row) -> None:
        self.characters += sum(len(value) for value in row.values() if isinstance(value, str))
        if self.beyond or len(self.rows) >= MAX_GROUP or self.characters > MAX_CHARACTERS:
            self.beyond += 1
        else:
            self.rows.append(row)

    def left_out(self, place: str) -> Iterator[LeftOutRecord]:
        if self.beyond:
            yield LeftOutRecord(place, f"prompts after the first {len(self.rows):,}: {self.beyond:,}")


def joined(rows: Iterable[Row], other_rows: Iterable[Row], key: str, other_key: str) -> Iterator[tuple[Row, RowGroup]]:
    """Yield each row with the others that have its key; both are in the order of their keys, as texts."""
    groups = groupby(other_rows, key=lambda row: text_of(row[other_key]))
    name, members = next(groups, _END)
    for row in rows:
        value = text_of(row[key])
        while name is not None and name < value:
            name, members = next(groups, _END)
        group = RowGroup()
        for member in members if name == value else ():
            group.add(member)
        yield row, group


_END: tuple[str | None, Iterator[Row]] = (None, iter(()))
