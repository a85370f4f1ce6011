"""The schema of a store: its name, its role and its lock."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any

import psycopg
from django.db import connections

from memoryhub import env
from memoryhub.core.backends.postgresql.pool import ERRORS, Pool, Raw, pool_of, run
from memoryhub.core.backends.postgresql.servers import url_of
from memoryhub.core.errors import Locked
from memoryhub.core.stores.routing import require_current_alias
from memoryhub.core.stores.store_id import StoreId

HUB, JOBS, HEADS = "hub", "jobs", "heads"
# PostgreSQL cuts longer names off
_LONGEST = 63
_DIGEST = 16
_LOCK_SECONDS = 60
_RETRY_SECONDS = 0.05


def quote(name: str) -> str:
    """Return an identifier as SQL."""
    return '"' + name.replace('"', '""') + '"'


@lru_cache(maxsize=1024)
def schema_of(store: StoreId) -> str:
    """Return the name of a store's schema; a slug too long for it is cut and gets a digest."""
    return shortened(f"{store.scope}_{store.name}")


def shortened(name: str) -> str:
    """Return a name that PostgreSQL does not cut off; a long one ends with a digest."""
    # No other name has the length of one with a digest, so none can be chosen to be the same
    if len(name) < _LONGEST:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST]
    return f"{name[: _LONGEST - _DIGEST - 1]}_{digest}"


def label_of(store: StoreId) -> str:
    """Return the comment of a store's schema, which names it in full."""
    return store.text


@lru_cache(maxsize=4096)
def lock_of(schema: str) -> int:
    """Return the key of the advisory lock that writers of a schema take."""
    return int.from_bytes(hashlib.sha256(f"memory-hub {schema}".encode()).digest()[:8], signed=True)


class Direct:
    """Statements that are not a store's: about schemas, roles and the server. Errors are Django's."""

    def __init__(self, url: str) -> None:
        self._url = url

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run statements in one transaction, and return the rows of the last one."""
        return run(self._url, sql, parameters, before=f"SET LOCAL lock_timeout TO '{_LOCK_SECONDS}s'; ")

    def alone(self, sql: str) -> None:
        """Run a statement that may not be in a transaction."""
        run(self._url, sql)

    def notices(self, sql: str) -> list[str]:
        """Run a statement that may not be in a transaction, and return the details of what the server says of it."""
        found: list[str] = []

        def note(notice: psycopg.errors.Diagnostic) -> None:
            found.append(notice.message_detail or "")

        def work(raw: Raw) -> None:
            raw.add_notice_handler(note)
            try:
                raw.execute(sql)
            finally:
                raw.remove_notice_handler(note)

        with ERRORS:
            pool_of(self._url).lend(work, may_repeat=False)
        return found


def direct(store: StoreId | None = None) -> Direct:
    """Return what runs statements on the server of a store, or on the hub's."""
    return Direct(url_of(store) if store else env.database_url())


def current_schema() -> str:
    """Return the name of the schema that statements of the current store see."""
    name: str = connections[require_current_alias()].settings_dict["SCHEMA"]
    return name


@contextmanager
def locked(name: str, url: str) -> Iterator[None]:
    """Hold a lock of the server, such as that of upgrades.

    Raises:
        Locked: others hold it for a minute.
    """
    pool = pool_of(url)
    with ERRORS:
        raw = _take_locked(pool, name)
    try:
        yield
    finally:
        with suppress(psycopg.Error):  # the lock ended with its connection
            raw.execute("ROLLBACK")
        pool.give_back(raw)


# Hold no connection while waiting: a small pool may have none left for the lock's holder
def _take_locked(pool: Pool, name: str) -> Raw:
    until = time.monotonic() + _LOCK_SECONDS
    while True:
        raw = pool.take()
        try:
            raw.execute("BEGIN; SET LOCAL idle_in_transaction_session_timeout TO 0")
            ((is_locked,),) = raw.execute(f"SELECT pg_try_advisory_xact_lock({lock_of(name)})").fetchall()
            if is_locked:
                return raw
            raw.execute("ROLLBACK")
        except BaseException:
            raw.close()
            raise
        pool.give_back(raw)
        if time.monotonic() > until:
            raise Locked(f"memory database is locked by another process ({name})")
        time.sleep(_RETRY_SECONDS)
