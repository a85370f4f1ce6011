"""What Django holds as the connection: it borrows one of the pool for each statement or transaction."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import count
from typing import Any

import psycopg
from psycopg import ClientCursor
from psycopg.errors import InFailedSqlTransaction

from memoryhub.core.backends.postgresql.faults import has_nul, shorten
from memoryhub.core.backends.postgresql.pool import Pool, Raw, is_read, pool_of
from memoryhub.core.errors import Invalid

_CANCEL_SECONDS = 5.0
# Of cursors, which need a name in their transaction
_numbers = count(1)


class Session:
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

    # Of this process: a fork has a pool of its own
    @property
    def _pool(self) -> Pool:
        return pool_of(self._url)

    def execute(self, sql: str, parameters: Sequence[Any] | None = None) -> ClientCursor[Any]:
        """Run one statement and return a cursor that has its rows, which needs no connection any more."""
        if self._raw is not None:
            return self._run(self._raw, sql, parameters)
        before = self._preamble()
        return self._pool.lend(lambda raw: self._run(raw, sql, parameters, before), may_repeat=is_read(sql))

    def _run(self, raw: Raw, sql: str, parameters: Sequence[Any] | None, before: str = "") -> ClientCursor[Any]:
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
        while cursor.nextset():
            pass
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

    def __init__(self, session: Session) -> None:
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
