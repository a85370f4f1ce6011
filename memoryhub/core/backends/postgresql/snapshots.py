"""Read a store's schema over a connection of one's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from memoryhub.core.backends.postgresql.locations import location_of, quote, schema_of, url_of
from memoryhub.core.backends.postgresql.pool import PooledSession
from memoryhub.core.errors import Invalid
from memoryhub.core.stores.store_id import StoreId, folder_of

_BATCH = 1000


class SchemaSnapshot:
    def __init__(self, session: PooledSession) -> None:
        self._session = session

    def rows(self, sql: str, *parameters: Any) -> Iterator[tuple[Any, ...]]:
        if self._session.autocommit:
            yield from self._session.execute(sql, parameters).fetchall()
            return
        fetch = self._session.declare(sql, parameters, _BATCH)
        while batch := fetch():
            yield from batch

    def value(self, sql: str, *parameters: Any) -> Any:
        row = self._session.execute(sql, parameters).fetchone()
        return row[0] if row else 0

    @contextmanager
    def at_one_moment(self) -> Iterator[None]:
        self._session.begin()
        try:
            yield
        finally:
            self._session.rollback()


def holds(location: str) -> bool:
    try:
        store = _store(location)
    except (IndexError, ValueError, Invalid):
        return False
    return location == location_of(store)


def folder(location: str) -> Path:
    return folder_of(_store(location))


@contextmanager
def reading(location: str) -> Iterator[SchemaSnapshot]:
    store = _store(location)
    preamble = f"SET LOCAL search_path TO {quote(schema_of(store))}; SET LOCAL transaction_read_only TO on; "
    begin = f"BEGIN ISOLATION LEVEL REPEATABLE READ; {preamble}"
    with closing(PooledSession(url_of(store), lambda: preamble, lambda: begin)) as session:
        yield SchemaSnapshot(session)


def _store(location: str) -> StoreId:
    return StoreId.parse(location.rsplit("#", 1)[1])
