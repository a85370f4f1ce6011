"""The database backend of every hub database: ``ENGINE = "memoryhub.core.backends.sqlite"``."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, lru_cache
from typing import Any

from django.db.backends.sqlite3 import base
from django.db.utils import OperationalError

from memoryhub.core.backends.sqlite.options import BUSY_TIMEOUT_SECONDS, PRAGMAS
from memoryhub.core.stores.dialect import render

_AT_MOST = 500
"""Rows of a table that wait; more cost memory and gain nothing."""
_WORD = re.compile(r"\w+")

Row = Sequence[Any]
RunMany = Callable[[str, list[Row]], object]


class Gathered:
    """The rows that wait, by table. Whoever names a table has its rows inserted first, so nobody misses them."""

    def __init__(self, run_many: RunMany) -> None:
        self._run_many = run_many
        self._waiting: dict[str, tuple[str, list[Row]]] = {}

    def add(self, table: str, sql: str, row: Row) -> None:
        """Let a row wait that ``sql`` inserts into ``table``; rows of one table keep their order."""
        known = self._waiting.get(table)
        if known and (known[0] != sql or len(known[1]) >= _AT_MOST):
            self._insert(table)
            known = None
        if known:
            known[1].append(row)
        else:
            self._waiting[table] = (sql, [row])

    def insert_named_in(self, sql: str) -> None:
        """Insert the rows of every table that a statement names, or whose shadow tables it does."""
        for table in self._waiting.keys() & _names(sql):
            self._insert(table)

    def insert_all(self) -> None:
        """Insert every row that waits."""
        for table in list(self._waiting):
            self._insert(table)

    def _insert(self, table: str) -> None:
        sql, rows = self._waiting.pop(table)
        self._run_many(sql, rows)


@lru_cache(maxsize=1024)
def _names(sql: str) -> frozenset[str]:
    """Return the words of a statement, and what stands before an underscore in each: ``a_b`` of ``a_b_c``."""
    words = set(_WORD.findall(sql))
    return frozenset(words | {word[: mark.start()] for word in words for mark in re.finditer("_", word)})


_RETRY_SECONDS = (0.0005, 0.004)


class DatabaseWrapper(base.DatabaseWrapper):
    """SQLite whose writers wait fairly.

    SQLite's own busy handler backs off to 100 ms, so late-comers overtake whoever waits longest. Short jittered
    retries give every waiter the same chance at each attempt, which keeps the longest wait well under the timeout.
    """

    def init_connection_state(self) -> None:
        """Set the pragmas; they hold for the life of the connection."""
        super().init_connection_state()
        for pragma in PRAGMAS:
            self.connection.execute(pragma)

    def _close(self) -> None:
        """End the transaction and let go of the driver's connection, which its last cursor closes.

        A thread that collects garbage may be about to reset a cursor of this connection, one that was left in the
        traceback of an error. ``pysqlite3``'s ``close()`` frees the statement under it, and the process hangs or
        crashes; a connection whose last reference goes has no cursor left.
        """
        if self.connection.in_transaction:
            with self.wrap_database_errors, suppress(OperationalError):
                self.connection.rollback()

    gathered: Gathered | None = None
    """The inserts that wait; None where each is made at once."""

    @contextmanager
    def gathering(self) -> Iterator[Gathered]:
        """Let inserts wait inside the block, which is inside a transaction; after an error they are forgotten."""
        if self.gathered is not None:
            yield self.gathered
            return
        self.gathered = Gathered(self._run_many)
        try:
            yield self.gathered
            self.gathered.insert_all()
        finally:
            self.gathered = None

    def insert(self, table: str, sql: str, row: Row) -> None:
        """Insert a row into a table, now or together with others."""
        if self.gathered is None:
            self.run(sql, row)
        else:
            self.gathered.add(table, sql, row)

    def create_cursor(self, name: str | None = None) -> Any:
        """Return a cursor for Django's own statements, before which nothing waits."""
        if self.gathered is not None:
            self.gathered.insert_all()
        return super().create_cursor(name)

    def _run_many(self, sql: str, rows: list[Row]) -> None:
        with self.wrap_database_errors:
            self.connection.executemany(_as_sqlite(sql), rows)

    def run(self, sql: str, parameters: Sequence[Any]) -> Any:
        """Run one statement straight on the driver's connection, and return its cursor.

        A cursor of Django's costs several times what the statement does; errors are Django's all the same.
        """
        self.ensure_connection()
        if self.gathered is not None:
            self.gathered.insert_named_in(sql)
        with self.wrap_database_errors:
            return self.connection.execute(_as_sqlite(sql), parameters)

    def _start_transaction_under_autocommit(self) -> None:
        raw = self.connection
        raw.execute("PRAGMA busy_timeout=0")
        try:
            self._begin_immediate(time.monotonic() + BUSY_TIMEOUT_SECONDS)
        finally:
            raw.execute(f"PRAGMA busy_timeout={int(BUSY_TIMEOUT_SECONDS * 1000)}")

    def _begin_immediate(self, deadline: float) -> None:
        while True:
            try:
                self.cursor().execute("BEGIN IMMEDIATE")
                return
            except OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise
            time.sleep(random.uniform(*_RETRY_SECONDS))  # noqa: S311 - spreads waiters, guards nothing


@cache
def _as_sqlite(sql: str) -> str:
    return render(sql, base.DatabaseWrapper.vendor).replace("%s", "?")
