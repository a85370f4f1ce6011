"""Connections of this process to a PostgreSQL server, lent for a statement or a transaction.

A connection has no state of its own between two loans, so a pooler in transaction mode may stand before the server.
psycopg's pool is not used: it connects in threads of its own, so a waiting caller gets a timeout instead of the error.
"""

from __future__ import annotations

import atexit
import os
import re
import select
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from itertools import count
from typing import Any, TypeVar

import psycopg
from django.db.utils import DatabaseErrorWrapper
from psycopg import ClientCursor
from psycopg.adapt import AdaptersMap, Loader
from psycopg.errors import InFailedSqlTransaction
from psycopg.types.numeric import FloatDumper
from psycopg.types.string import TextLoader

from memoryhub.core.backends.postgresql.faults import has_nul, shorten
from memoryhub.core.backends.postgresql.options import BUSY_TIMEOUT_SECONDS
from memoryhub.core.errors import Invalid

T = TypeVar("T")
Raw = psycopg.Connection[Any]

_KEPT = 16
_CONNECT_SECONDS = 5
# After so long without a sign of the server's machine a statement fails; the system's default is a quarter of an hour
_SILENT_MILLISECONDS = 30_000
_TOO_MANY = "too many"
_RETRY_SECONDS = 0.05
_READS = re.compile(r"\s*(?:SELECT|VALUES|SHOW|EXPLAIN|WITH(?!.*\b(?:INSERT|UPDATE|DELETE)\b))\b", re.I | re.S)


class _Wrapped:
    Database = psycopg
    errors_occurred = False


# Turns psycopg's errors into Django's
ERRORS = DatabaseErrorWrapper(_Wrapped())


class Pool:
    def __init__(self, url: str) -> None:
        self._url = url
        self._lock = threading.Lock()
        self._free: list[Raw] = []

    def take(self) -> Raw:
        while True:
            with self._lock:
                raw = self._free.pop() if self._free else None
            if raw is None:
                return self.connect()
            # The server sends nothing to an idle connection until it ends it, as when it restarts
            watched = select.poll()
            watched.register(raw.fileno(), select.POLLIN)
            if not watched.poll(0):
                return raw
            raw.close()

    def give_back(self, raw: Raw) -> None:
        if not raw.closed and raw.info.transaction_status == psycopg.pq.TransactionStatus.IDLE:
            with self._lock:
                if len(self._free) < _KEPT:
                    self._free.append(raw)
                    return
        raw.close()

    def lend(self, work: Callable[[Raw], T], *, may_repeat: bool) -> T:
        """Return what ``work`` returns, given a connection; if that is lost, it is repeated over a new one.

        Args:
            work: what needs the connection.
            may_repeat: whether a lost answer does no harm; False for what may have been committed.
        """
        raw = self.take()
        try:
            return work(raw)
        except psycopg.OperationalError:
            if not raw.closed:
                raise
            self.discard_free()
            if not may_repeat:
                raise
        finally:
            self.give_back(raw)
        raw = self.connect()
        try:
            return work(raw)
        finally:
            self.give_back(raw)

    def connect(self) -> Raw:
        """Return a new connection; wait while the server has too many of them.

        Raises:
            psycopg.OperationalError: the server can't be reached.
        """
        until = time.monotonic() + BUSY_TIMEOUT_SECONDS
        while True:
            try:
                return self._connect()
            except psycopg.OperationalError as error:
                if _TOO_MANY not in str(error) or time.monotonic() > until:
                    shorten(error)
                    raise
            time.sleep(_RETRY_SECONDS)

    def discard_free(self) -> None:
        """Close what nobody uses: after one connection was lost, the others are too."""
        with self._lock:
            free, self._free = self._free, []
        for raw in free:
            raw.close()

    def _connect(self) -> Raw:
        address = self._url
        if "tcp_user_timeout" not in address:
            address = psycopg.conninfo.make_conninfo(address, tcp_user_timeout=_SILENT_MILLISECONDS)
        return psycopg.connect(
            address,
            autocommit=True,
            prepare_threshold=None,
            cursor_factory=psycopg.ClientCursor,
            context=_adapters(),
            connect_timeout=_CONNECT_SECONDS,
            client_encoding="UTF8",
            application_name="memory-hub",
        )


def pool_of(url: str) -> Pool:
    # A forked process must not use its parent's connections
    return _pool(url, os.getpid())


def is_read(sql: str) -> bool:
    return _READS.match(sql) is not None


def run(url: str, sql: str, parameters: Sequence[Any] = (), *, before: str = "") -> list[tuple[Any, ...]]:
    """Run statements over a connection of their own and return the rows of the last one; errors are Django's.

    Args:
        url: of the database.
        sql: one statement, or several that are one transaction.
        parameters: for all of them.
        before: what precedes them in their transaction.
    """

    def work(raw: Raw) -> list[tuple[Any, ...]]:
        cursor = psycopg.ClientCursor(raw)
        cursor.execute(before + (cursor.mogrify(sql, parameters) if parameters else sql))
        while cursor.nextset():
            pass
        return cursor.fetchall() if cursor.description else []

    with ERRORS:
        return pool_of(url).lend(work, may_repeat=is_read(sql))


@cache
def _pool(url: str, process: int) -> Pool:
    pool = Pool(url)
    atexit.register(_close, pool, process)
    return pool


def _close(pool: Pool, process: int) -> None:
    if os.getpid() == process:
        pool.discard_free()


class _NumberLoader(Loader):
    def load(self, data: Any) -> int | float:
        text = bytes(data).decode()
        return int(text) if text.lstrip("-").isdigit() else float(text)


class _FloatDumper(FloatDumper):
    def quote(self, obj: float) -> bytes:
        return bytes(super().quote(obj)) + b"::float8"


# Values are what SQLite returns for the same statement: JSON is text, and a number is an int or a float
@cache
def _adapters() -> AdaptersMap:
    adapters = AdaptersMap(psycopg.adapters)
    adapters.register_loader("numeric", _NumberLoader)
    for name in ("json", "jsonb"):
        adapters.register_loader(name, TextLoader)
    adapters.register_dumper(float, _FloatDumper)
    return adapters


_CANCEL_SECONDS = 5.0
# Numbers for the names that cursors need in their transaction
_numbers = count(1)


class PooledSession:
    """A connection that holds none of the server's outside a transaction.

    Args:
        url: of the database whose connections it borrows.
        preamble: returns what must precede each statement outside a transaction.
        begin: returns what begins a transaction and takes its locks.
    """

    def __init__(self, url: str, preamble: Callable[[], str], begin: Callable[[], str]) -> None:
        self._url = url
        self._preamble = preamble
        self._begin = begin
        self._raw: Raw | None = None
        # The statement that runs now, for ``cancel``, which must not reach a later one
        self._running: ClientCursor[Any] | None = None
        self._cancelling = threading.Lock()
        self.closed = False

    # A fork has a pool of its own
    @property
    def _pool(self) -> Pool:
        return pool_of(self._url)

    def execute(self, sql: str, parameters: Sequence[Any] | None = None) -> ClientCursor[Any]:
        """Run one statement and return a cursor that has its rows, which needs no connection any more."""
        if self._raw is not None:
            return self._run(self._raw, sql, parameters)
        before = self._preamble()
        return self._pool.lend(lambda raw: self._run(raw, sql, parameters, before), may_repeat=is_read(sql))

    def fetch_together(self, queries: Sequence[tuple[str, Sequence[Any]]]) -> list[list[tuple[Any, ...]]]:
        """Run queries in one round trip and return the rows of each."""

        def work(raw: Raw, before: str = "") -> list[list[tuple[Any, ...]]]:
            mogrify = ClientCursor(raw).mogrify
            cursor = self._send(raw, "; ".join(mogrify(sql, parameters) for sql, parameters in queries), None, before)
            results: list[list[tuple[Any, ...]]] = []
            has_result: bool | None = True
            while has_result:
                # The preamble's statements return no rows
                if cursor.description:
                    results.append(cursor.fetchall())
                has_result = cursor.nextset()
            return results

        if self._raw is not None:
            return work(self._raw)
        before = self._preamble()
        return self._pool.lend(lambda raw: work(raw, before), may_repeat=all(is_read(sql) for sql, _ in queries))

    def _run(self, raw: Raw, sql: str, parameters: Sequence[Any] | None, before: str = "") -> ClientCursor[Any]:
        cursor = self._send(raw, sql, parameters, before)
        while cursor.nextset():
            pass
        return cursor

    def _send(self, raw: Raw, sql: str, parameters: Sequence[Any] | None, before: str) -> ClientCursor[Any]:
        cursor = ClientCursor(raw)
        self._running = cursor
        try:
            if parameters is not None:
                sql = cursor.mogrify(sql, parameters)
            cursor.execute(before + sql)
        except psycopg.Error as error:
            shorten(error)
            if has_nul(error):
                raise Invalid("a text has a NUL character, which no stored text has; leave it out") from error
            raise
        finally:
            with self._cancelling:
                self._running = None
        return cursor

    def declare(self, sql: str, parameters: Sequence[Any], size: int) -> Callable[[], list[tuple[Any, ...]]]:
        """Run a query in the transaction and return what fetches its next ``size`` rows."""
        # The plan should know that all rows will be read. The cursor ends with the transaction
        name = f"rows_{next(_numbers)}"
        self.execute(f"SET LOCAL cursor_tuple_fraction TO 1; DECLARE {name} NO SCROLL CURSOR FOR {sql}", parameters)
        return lambda: self.execute(f"FETCH {size} FROM {name}").fetchall()

    def begin(self) -> None:
        raw = self._pool.take()
        try:
            try:
                self._run(raw, self._begin(), None)
            except psycopg.OperationalError:
                if not raw.closed:
                    raise
                self._pool.discard_free()
                raw = self._pool.connect()
                self._run(raw, self._begin(), None)
        except BaseException:
            self._end(raw)
            raise
        self._raw = raw

    def commit(self) -> None:
        raw, self._raw = self._raw, None
        if raw is None:
            return
        try:
            if raw.execute("COMMIT").statusmessage != "COMMIT":
                raise InFailedSqlTransaction("the transaction was rolled back, because a statement in it had failed")
        except psycopg.Error as error:
            shorten(error)
            raise
        finally:
            self._end(raw)

    def rollback(self) -> None:
        raw, self._raw = self._raw, None
        if raw is not None:
            self._end(raw)

    def _end(self, raw: Raw) -> None:
        if not raw.closed and raw.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            try:
                raw.execute("ROLLBACK")
            except psycopg.Error:
                raw.close()
        self._pool.give_back(raw)

    def cancel(self) -> None:
        """Have the statement that runs cancelled, if there is one, without waiting for the server."""
        running = self._running
        if running is not None and not self._cancelling.locked():
            threading.Thread(target=self._cancel, args=[running], daemon=True).start()

    def _cancel(self, running: ClientCursor[Any]) -> None:
        with self._cancelling, suppress(psycopg.Error):
            if self._running is running:
                running.connection.cancel_safe(timeout=_CANCEL_SECONDS)

    def close(self) -> None:
        self.rollback()
        self.closed = True

    # What Django and psycopg ask a connection for

    def cursor(self, **_: Any) -> Cursor:
        return Cursor(self)

    @property
    def autocommit(self) -> bool:
        return self._raw is None

    @autocommit.setter
    def autocommit(self, value: bool) -> None:
        if value:
            self.commit()
        elif self._raw is None:
            self.begin()

    @property
    def connection(self) -> Raw:
        raw = self._raw
        if raw is None:
            raw = self._pool.take()
            self._pool.give_back(raw)
        return raw

    @property
    def info(self) -> psycopg.ConnectionInfo:
        return self.connection.info

    @property
    def adapters(self) -> Any:
        return self.connection.adapters


class Cursor:
    """A cursor for Django: each statement gets one of psycopg's."""

    arraysize = 100

    def __init__(self, session: PooledSession) -> None:
        self._session = session
        self._last: ClientCursor[Any] | None = None
        self.closed = False

    def execute(self, sql: Any, parameters: Sequence[Any] | None = None) -> Cursor:
        text = sql if isinstance(sql, str) else sql.as_string(self._session.connection)
        self._last = self._session.execute(text, parameters)
        return self

    def executemany(self, sql: str, many: Sequence[Sequence[Any]]) -> None:
        for parameters in many:
            self.execute(sql, parameters)

    @property
    def connection(self) -> Raw:
        return self._session.connection

    def close(self) -> None:
        self.closed = True

    def __enter__(self) -> Cursor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._last or ())

    def __getattr__(self, name: str) -> Any:
        if self._last is None:
            if name in ("description", "query"):
                return None
            if name == "rowcount":
                return -1
            raise AttributeError(name)
        return getattr(self._last, name)
