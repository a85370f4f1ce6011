"""A store's twin: the same tables, filled and searched by bare ``sqlite3``, as the floor of the hub's costs.

It follows the hub's store row by row, so that both have the same content. Only its INSERTs and queries are timed, not
the reading of the rows to copy.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.speed.timing import WALL, Clock, seconds_by
from memories.search.fts5 import PUT_TEXT
from memories.search.index import has_text, text_row
from memories.search.text import match_any, terms
from memoryhub.core import log
from memoryhub.core.backends.sqlite.options import BUSY_TIMEOUT_SECONDS, PRAGMAS
from memoryhub.core.backends.sqlite.structure import template_path
from memoryhub.core.events.projection import read_models
from memoryhub.core.models import RawEvent
from memoryhub.core.search import Document, makers_for
from memoryhub.core.stores import rows

# Tables that a write fills, with the column of the event's position. Other tables, such as sessions and turns,
# are short here and compared row by row.
_TABLES = {
    "raw_events": "position",
    "memories_memory": "id",
    "memories_memoryversion": "id",
    "memories_memorytag": "memory_id",
    "memories_searchdocument": "id",
}

_PUT_TEXT = PUT_TEXT.replace("%s", "?")
# The plain query: score all documents with any of the terms. It shows what the hub's optimisations gain.
_SEARCH = (
    "SELECT rowid, bm25(search_fts, 2.0, 1.0, 0.3, 0.5) AS score FROM search_fts WHERE search_fts MATCH ? "
    "ORDER BY score LIMIT 1000"
)

Rows = list[tuple[Any, ...]]


class Twin:
    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(template_path(), path)
        self._connection = connect(path)
        self._position = 0
        self._others: dict[str, set[tuple[Any, ...]]] = {
            table: set() for table in _all_tables() if table not in _TABLES
        }

    def close(self) -> None:
        self._connection.close()

    def follow(self, clock: Clock = WALL) -> float:
        batches = [(_put_sql(table, found), found) for table, found in self._new_rows() if found]
        texts: Rows = list(_texts_after(self._position))
        if not batches:
            raise RuntimeError("the store has no new rows to copy to the twin")
        self._position = log.head()[0]
        return seconds_by(clock, self._insert, [*batches, (_PUT_TEXT, texts)])

    def _insert(self, batches: list[tuple[str, Rows]]) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        for sql, found in batches:
            self._connection.executemany(sql, found)
        self._connection.execute("COMMIT")

    def _new_rows(self) -> Iterator[tuple[str, Rows]]:
        for table, key in _TABLES.items():
            yield table, rows.fetch(f"SELECT * FROM {table} WHERE {key} > %s ORDER BY {key}", [self._position])
        for table, known in self._others.items():
            found = rows.fetch(f"SELECT * FROM {table}")
            yield table, [row for row in found if row not in known]
            known.update(found)

    def search(self, question: str, clock: Clock = WALL) -> float:
        """Rank all documents with any of the terms; return the seconds by ``clock``.

        Raises:
            RuntimeError: nothing was found.
        """
        started = clock()
        found = self._connection.execute(_SEARCH, [match_any(terms(question))]).fetchall()
        seconds = clock() - started
        if not found:
            raise RuntimeError(f"bare sqlite3 found nothing for {question!r}")
        return seconds

    def check(self) -> None:
        """Compare the number of rows of every table with the store's.

        Raises:
            RuntimeError: they differ, so a ratio to this twin is meaningless.
        """
        for table in ("search_fts_docsize", *_all_tables()):
            count = f"SELECT count(*) FROM {table}"
            theirs, mine = rows.fetch(count)[0][0], self._connection.execute(count).fetchone()[0]
            if theirs != mine:
                raise RuntimeError(f"{table} has {theirs} rows in the store and {mine} in its bare twin")


def connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_SECONDS, isolation_level=None)
    for pragma in PRAGMAS:
        connection.execute(pragma)
    return connection


def _all_tables() -> list[str]:
    return [RawEvent._meta.db_table, *(model._meta.db_table for model in read_models())]


def _put_sql(table: str, found: Rows) -> str:
    verb = "INSERT" if table in _TABLES else "INSERT OR REPLACE"
    return f"{verb} INTO {table} VALUES ({', '.join('?' * len(found[0]))})"


def _texts_after(position: int) -> Iterator[tuple[int, str, str, str, str]]:
    for event in map(log.event_of, log.events().window(after=position)):
        for make in makers_for(event.type):
            document = make(event)
            if isinstance(document, Document) and has_text(document):
                yield text_row(document)
