"""The database backend of every hub database: ``ENGINE = "memoryhub.core.sqlite"``."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

from django.db.backends.sqlite3 import base
from django.db.utils import OperationalError

from memoryhub.core.dialect import render
from memoryhub.core.sqlite.gathered import Gathered, Row
from memoryhub.core.sqlite.options import BUSY_TIMEOUT_SECONDS, PRAGMAS

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
