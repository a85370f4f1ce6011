"""What others can do to a store without the hub: the same in both databases."""

from __future__ import annotations

import fcntl
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from django.db import connections

from memoryhub.core.backends import selected
from memoryhub.core.backends.base import Anchor
from memoryhub.core.stores.store import StoreId
from memoryhub.core.stores.store_id import folder_of
from tests.databases import on_postgresql, superuser_url
from tests.postgresql import ROLE
from tests.support import forget_all_stores


def change(store: StoreId, *statements: str, parameters: Sequence[Any] = ()) -> None:
    """Run statements without the triggers that guard the log; each gets the parameters."""
    if store.alias in connections.settings:
        connections[store.alias].close()
    with _opened(store) as run:
        for name in _triggers(run, store):
            run(f"DROP TRIGGER {name}{' ON raw_events' if on_postgresql() else ''}")
        for statement in statements:
            run(statement if on_postgresql() else statement.replace("%s", "?"), parameters)


def _triggers(run: Any, store: StoreId) -> list[str]:
    if on_postgresql():
        sql = (
            "SELECT tgname FROM pg_trigger WHERE NOT tgisinternal AND tgrelid = 'raw_events'::regclass ORDER BY tgname"
        )
    else:
        sql = "SELECT name FROM sqlite_master WHERE type = 'trigger'"
    return [name for (name,) in run(sql).fetchall()]


@contextmanager
def _opened(store: StoreId) -> Iterator[Any]:
    if not on_postgresql():
        from memoryhub.core.backends.sqlite.files import path_of

        with closing(sqlite3.connect(path_of(store))) as raw, raw:
            yield raw.execute
        return
    with _connected() as raw, raw.transaction():
        raw.execute(f"SET LOCAL search_path TO {_schema(store)}")
        # A superuser's statements pass over foreign keys, as those of SQLite's shell do
        raw.execute("SET LOCAL session_replication_role TO replica")
        yield raw.execute


@contextmanager
def _connected() -> Iterator[Any]:
    import psycopg

    with psycopg.connect(superuser_url(), autocommit=True, cursor_factory=psycopg.ClientCursor) as raw:
        yield raw


def _schema(store: StoreId) -> str:
    from memoryhub.core.backends.postgresql.locations import quote, schema_of

    return quote(schema_of(store))


@contextmanager
def locked(store: StoreId) -> Iterator[None]:
    """Hold the write lock of a store, as another process does."""
    if not on_postgresql():
        from memoryhub.core.backends.sqlite.files import path_of

        with closing(sqlite3.connect(path_of(store), isolation_level=None)) as raw:
            raw.execute("BEGIN IMMEDIATE")
            yield
        return
    from memoryhub.core.backends.postgresql.locations import lock_of, schema_of

    with _connected() as raw, raw.transaction():
        raw.execute("SELECT pg_advisory_xact_lock(%s)", [lock_of(schema_of(store))])
        yield


@contextmanager
def busy_timeout(seconds: float) -> Iterator[None]:
    """Let this process wait so long for locks."""
    if not on_postgresql():
        with mock.patch("memoryhub.core.backends.sqlite.base.BUSY_TIMEOUT_SECONDS", seconds):
            yield
        return
    from memoryhub.core.backends.postgresql import base

    with mock.patch.object(base, "BUSY_TIMEOUT_SECONDS", seconds):
        base._preamble.cache_clear()
        yield
    base._preamble.cache_clear()


class Copy:
    """The rows of a store at one time."""

    def __init__(self, store: StoreId) -> None:
        forget_all_stores()
        self._store = store
        self._content = self._saved() if on_postgresql() else self._file()

    def _saved(self) -> dict[str, list[str]]:
        with _opened(self._store) as run:
            sql = "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = %s::regnamespace"
            names = [name for (name,) in run(sql, [_schema(self._store)]).fetchall()]
            return {name: [row for (row,) in run(f'SELECT t::text FROM "{name}" t').fetchall()] for name in names}

    def _file(self) -> bytes:
        with _opened(self._store) as run:
            run("PRAGMA wal_checkpoint(TRUNCATE)")
        return _path(self._store).read_bytes()

    def put_back(self) -> None:
        forget_all_stores()
        if isinstance(self._content, bytes):
            _remove_files(self._store)
            _path(self._store).write_bytes(self._content)
            return
        with _opened(self._store) as run:
            for name, found in self._content.items():
                run(f'DELETE FROM "{name}"')
                for row in found:
                    run(f'INSERT INTO "{name}" SELECT (%s::"{name}").*', [row])


def lose(store: StoreId) -> None:
    """Remove what holds a store, but nothing beside it."""
    forget_all_stores()
    if on_postgresql():
        from memoryhub.core.backends.postgresql.stores import _cached_schemas

        with _connected() as raw:
            raw.execute(f"DROP SCHEMA IF EXISTS {_schema(store)} CASCADE")
        _cached_schemas.clear()
    else:
        _remove_files(store)


def lose_content(store: StoreId) -> None:
    """Leave nothing in what holds a store."""
    lose(store)
    if on_postgresql():
        with _connected() as raw:
            raw.execute(f"CREATE SCHEMA {_schema(store)} AUTHORIZATION {ROLE}")
            raw.execute(f"COMMENT ON SCHEMA {_schema(store)} IS %s", [store.text])
    else:
        _path(store).touch()


def has_no_content(store: StoreId) -> bool:
    if not on_postgresql():
        return not _path(store).exists() or not _path(store).stat().st_size
    with _connected() as raw:
        sql = "SELECT 1 FROM pg_class WHERE relnamespace = to_regnamespace(%s)"
        return not raw.execute(sql, [_schema(store)]).fetchall()


def places_with(store: StoreId, text: str) -> list[str]:
    """Return the store's files and tables that have a text in small or capital letters."""
    paths = [path for path in folder_of(store).rglob("*") if path.is_file()]
    files = [path.name for path in paths if text.lower().encode() in path.read_bytes().lower()]
    return files + tables_with(text, _schema(store).strip('"').replace("_", "\\_") if on_postgresql() else "")


def tables_with(text: str, schemas: str = "project\\_%") -> list[str]:
    """Return the tables of PostgreSQL's schemas, a pattern of LIKE, that have a text in a row; none in SQLite."""
    if not on_postgresql():
        return []
    with _connected() as raw:
        sql = (
            "SELECT c.oid::regclass::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE c.relkind = 'r' AND n.nspname LIKE %s"
        )
        tables = [name for (name,) in raw.execute(sql, [schemas]).fetchall()]
        found = "SELECT EXISTS (SELECT 1 FROM {} AS t WHERE strpos(lower(t::text), lower(%s)) > 0)"
        return [name for name in tables if raw.execute(found.format(name), [text]).fetchone()[0]]


def set_anchor(store: StoreId, position: int, digest: str) -> None:
    selected.anchors.replace(store, Anchor(position, digest))


@contextmanager
def anchor_locked(store: StoreId) -> Iterator[None]:
    """Hold the anchor of a store, as another process does."""
    if not on_postgresql():
        from memoryhub.core.backends.sqlite.anchors import anchor_path

        with anchor_path(store).open("r+b") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            yield
        return

    with _connected() as raw, raw.transaction():
        raw.execute("SELECT 1 FROM heads.anchors WHERE store = %s FOR UPDATE", [store.text])
        yield


def _path(store: StoreId) -> Path:
    from memoryhub.core.backends.sqlite.files import path_of

    return path_of(store)


def _remove_files(store: StoreId) -> None:
    for end in ("", "-wal", "-shm"):
        _path(store).with_name(f"events.db{end}").unlink(missing_ok=True)
