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
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeVar

import psycopg
from django.db.utils import DatabaseErrorWrapper
from psycopg.adapt import AdaptersMap, Loader
from psycopg.types.numeric import FloatDumper
from psycopg.types.string import TextLoader

from memoryhub.core.backends.postgresql.faults import shorten
from memoryhub.core.backends.postgresql.options import BUSY_TIMEOUT_SECONDS

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
            if not _has_ended(raw):
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


# The server sends nothing to an idle connection until it ends it, as when it restarts
def _has_ended(raw: Raw) -> bool:
    watched = select.poll()
    watched.register(raw.fileno(), select.POLLIN)
    return bool(watched.poll(0))


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
