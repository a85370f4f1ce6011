"""Read a store's schema over a connection of one's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from psycopg import ClientCursor

from memoryhub.core.backends.postgresql.pool import Raw, pool_of
from memoryhub.core.backends.postgresql.schemas import quote, schema_of
from memoryhub.core.backends.postgresql.servers import location_of, url_of
from memoryhub.core.errors import Invalid
from memoryhub.core.stores.store_id import StoreId, folder_of


class Snapshot:
    def __init__(self, connection: Raw, schema: str) -> None:
        self._connection = connection
        self._before = f"SET LOCAL search_path TO {quote(schema)}; SET LOCAL transaction_read_only TO on; "

    def rows(self, sql: str, *parameters: Any) -> Iterator[tuple[Any, ...]]:
        cursor = ClientCursor(self._connection)
        cursor.execute(self._before + (cursor.mogrify(sql, parameters) if parameters else sql))
        while cursor.nextset():
            pass
        yield from cursor

    def value(self, sql: str, *parameters: Any) -> Any:
        return next(self.rows(sql, *parameters), (0,))[0]

    @contextmanager
    def at_one_moment(self) -> Iterator[None]:
        self._connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        try:
            yield
        finally:
            self._connection.execute("COMMIT")


def holds(location: str) -> bool:
    try:
        store = _store(location)
    except (IndexError, ValueError, Invalid):
        return False
    return location == location_of(store)


def folder(location: str) -> Path:
    return folder_of(_store(location))


@contextmanager
def reading(location: str) -> Iterator[Snapshot]:
    store = _store(location)
    with closing(pool_of(url_of(store)).connect()) as connection:
        yield Snapshot(connection, schema_of(store))


def _store(location: str) -> StoreId:
    return StoreId.parse(location.rsplit("#", 1)[1])
