"""A home folder of its own for a class, and what a write changes in it."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from django.db import connections

from memoryhub.core.backends.selected import stores
from memoryhub.core.stores.store_id import Scope
from tests.databases import at_home, on_postgresql, remove_home
from tests.home import run_home


class Home:
    """A folder of its own for a class, and what is in it to compare."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="matrix-", dir=run_home()))
        # A connection to each store, with the number of its file
        self._readers: dict[Path, tuple[int, sqlite3.Connection]] = {}

    def patched(self) -> Any:
        return at_home(self.path)

    def remove(self) -> None:
        for _, reader in self._readers.values():
            reader.close()
        remove_home(self.path)

    def state(self) -> dict[str, Any]:
        """Return the head of each store's log and the rows of the hub's tables: what a write changes."""
        heads: dict[str, Any] = self._heads()
        with connections["default"].cursor() as cursor:
            for table, columns in _kept_columns().items():
                cursor.execute(f"SELECT {columns} FROM {table} ORDER BY 1")
                heads[table] = cursor.fetchall()
        return heads

    def _heads(self) -> dict[str, Any]:
        if not on_postgresql():
            return {str(path.relative_to(self.path)): self._head(path) for path in self._stores()}
        from memoryhub.core.backends.postgresql.schemas import direct

        empty = {f"{scope}:{name}": 0 for scope in (Scope.PROJECT, Scope.ORG) for name in stores.names(scope)}
        return empty | dict(direct().rows("SELECT store, position FROM heads.anchors"))

    def _head(self, path: Path) -> int:
        inode = path.stat().st_ino
        known = self._readers.get(path)
        if known is None or known[0] != inode:
            self._readers[path] = known = inode, sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        return int(known[1].execute("SELECT max(position) FROM raw_events").fetchone()[0] or 0)

    def _stores(self) -> Iterator[Path]:
        for folder in ("projects/*", "orgs/*", "global"):
            yield from self.path.glob(f"{folder}/events.db")


# What every request may write: the sessions of browsers, and when a token or a link was used. Leases are processes'.
_OF_USE = {"django_session": None, "leases": None, "memoryhub_agenttoken": ("last_used_at", "last_used_from")}


@cache
def _kept_columns() -> dict[str, str]:
    found = {}
    with connections["default"].cursor() as cursor:
        for table in connections["default"].introspection.table_names(cursor):
            spare = _OF_USE.get(table, ("last_login",))
            if spare is not None:
                columns = connections["default"].introspection.get_table_description(cursor, table)
                found[table] = ", ".join(f'"{column.name}"' for column in columns if column.name not in spare)
    return found
