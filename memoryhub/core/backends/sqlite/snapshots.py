"""Read a store's file over a connection of one's own."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from memoryhub import env
from memoryhub.core.backends.sqlite.options import BUSY_TIMEOUT_SECONDS


class FileSnapshot:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def rows(self, sql: str, *parameters: Any) -> Iterator[tuple[Any, ...]]:
        yield from self._connection.execute(sql.replace("%s", "?"), parameters)

    def value(self, sql: str, *parameters: Any) -> Any:
        return next(self.rows(sql, *parameters), (0,))[0]

    @contextmanager
    def at_one_moment(self) -> Iterator[None]:
        self._connection.execute("BEGIN")
        yield
        self._connection.execute("COMMIT")


def holds(location: str) -> bool:
    return Path(location).resolve().is_relative_to(env.home().resolve())


def folder(location: str) -> Path:
    return Path(location).parent


@contextmanager
def reading(location: str) -> Iterator[FileSnapshot]:
    address = f"file:{quote(location)}?mode=ro"
    with closing(sqlite3.connect(address, uri=True, timeout=BUSY_TIMEOUT_SECONDS)) as connection:
        yield FileSnapshot(connection)
