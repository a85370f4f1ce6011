from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

from django.db.backends.sqlite3 import base
from django.db.utils import OperationalError

from memoryhub.core.backends.sqlite.options import BUSY_TIMEOUT_SECONDS, PRAGMAS
from memoryhub.core.stores.dialect import render
from memoryhub.core.stores.rows import Gathered, Query, Row

# SQLite's busy handler backs off to 100 ms, so late-comers overtake older waiters. Short jittered retries give every
# writer the same chance, which keeps the longest wait well under the timeout (decision 7).
_RETRY_SECONDS = (0.0005, 0.004)


class SQLiteConnection(base.DatabaseWrapper):
    gathered: Gathered | None = None

    def init_connection_state(self) -> None:
        super().init_connection_state()
        for pragma in PRAGMAS:
            self.connection.execute(pragma)

    def _close(self) -> None:
        # The connection is not closed here but by its last cursor. A thread that collects garbage may be about to
        # reset a cursor left in a traceback; pysqlite3's close() would free the statement under it, and the process
        # would hang or crash.
        if self.connection.in_transaction:
            with self.wrap_database_errors, suppress(OperationalError):
                self.connection.rollback()

    def create_cursor(self, name: str | None = None) -> Any:
        if self.gathered is not None:
            self.gathered.insert_all()
        return super().create_cursor(name)

    def run_many(self, sql: str, rows: list[Row]) -> None:
        with self.wrap_database_errors:
            self.connection.executemany(_as_sqlite(sql), rows)

    def run(self, sql: str, parameters: Sequence[Any]) -> Any:
        """Run one statement directly on the driver's connection, several times as fast as with Django's cursor."""
        # Errors are Django's all the same (decision 5).
        self.ensure_connection()
        if self.gathered is not None:
            self.gathered.insert_named_in(sql)
        with self.wrap_database_errors:
            return self.connection.execute(_as_sqlite(sql), parameters)

    def fetch_together(self, queries: Sequence[Query]) -> list[list[tuple[Any, ...]]]:
        with self.wrap_database_errors:
            return [self.run(sql, parameters).fetchall() for sql, parameters in queries]

    def batches(self, sql: str, parameters: Sequence[Any], size: int) -> Iterator[list[tuple[Any, ...]]]:
        cursor = self.run(sql, parameters)
        while True:
            with self.wrap_database_errors:
                batch = cursor.fetchmany(size)
            if not batch:
                return
            yield batch

    def has_table(self, name: str) -> bool:
        with self.cursor() as cursor:
            cursor.execute("SELECT 1 FROM sqlite_master WHERE name = %s", [name])
            return cursor.fetchone() is not None

    def has_module(self, name: str) -> bool:
        with self.cursor() as cursor:
            cursor.execute("SELECT 1 FROM pragma_module_list WHERE name = %s", [name])
            return cursor.fetchone() is not None

    def interrupt(self) -> None:
        raw = self.connection
        if raw is not None:
            raw.interrupt()

    def _start_transaction_under_autocommit(self) -> None:
        raw = self.connection
        raw.execute("PRAGMA busy_timeout=0")
        try:
            deadline = time.monotonic() + BUSY_TIMEOUT_SECONDS
            while True:
                try:
                    self.cursor().execute("BEGIN IMMEDIATE")
                    return
                except OperationalError as error:
                    if "locked" not in str(error) or time.monotonic() > deadline:
                        raise
                time.sleep(random.uniform(*_RETRY_SECONDS))  # noqa: S311 - spreads waiters, guards nothing
        finally:
            raw.execute(f"PRAGMA busy_timeout={int(BUSY_TIMEOUT_SECONDS * 1000)}")


# The name by which Django finds a backend
DatabaseWrapper = SQLiteConnection


@cache
def _as_sqlite(sql: str) -> str:
    return render(sql, base.DatabaseWrapper.vendor).replace("%s", "?")
