"""Where a store is: its server, its schema, its role and its lock."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any

import psycopg
from django.db import ProgrammingError, connections
from django.db.utils import load_backend

from memoryhub import env
from memoryhub.core.backends.postgresql import faults
from memoryhub.core.backends.postgresql.options import connection_settings
from memoryhub.core.backends.postgresql.pool import ERRORS, Pool, Raw, pool_of, run
from memoryhub.core.errors import Locked, Unavailable
from memoryhub.core.home_database import display_url
from memoryhub.core.stores.routing import require_current_alias
from memoryhub.core.stores.store_id import Scope, StoreId

HUB, JOBS, HEADS = "hub", "jobs", "heads"
# PostgreSQL cuts longer names off
_LONGEST = 63
_DIGEST = 16
_LOCK_SECONDS = 60
_RETRY_SECONDS = 0.05
# How long this process believes what it has read of servers. A store that was moved meanwhile is fenced where it was.
_CACHE_SECONDS = 1.0
_CREATE = (
    f"SELECT pg_advisory_xact_lock(hashtext('{HEADS}')); "
    f"CREATE SCHEMA IF NOT EXISTS {HEADS}; CREATE TABLE IF NOT EXISTS {HEADS}.places "
    '(store text COLLATE "C" PRIMARY KEY, server text NOT NULL)'
)
_PUT = f"INSERT INTO {HEADS}.places VALUES (%s, %s) ON CONFLICT (store) DO UPDATE SET server = excluded.server"
_REMOVE = f"DELETE FROM {HEADS}.places WHERE store = %s"
_READ = f"SELECT store, server FROM {HEADS}.places"
_LABELLED = (
    "SELECT n.nspname, d.description FROM pg_namespace n JOIN pg_description d ON d.objoid = n.oid "
    "AND d.classoid = 'pg_namespace'::regclass WHERE starts_with(d.description, %s)"
)

# Servers by store, by the address of the hub's own tables, with the time when they were read
_assigned: dict[str, tuple[float, dict[str, str]]] = {}
_views: dict[str, str] = {}
# Set in a process that works on one server, whatever was recorded
_only_here = threading.Event()


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

    def labelled(self, beginning: str) -> list[tuple[str, str]]:
        """Return the names and the comments of schemas whose comment has this beginning."""
        return self.rows(_LABELLED, [beginning])

    def alone(self, sql: str) -> None:
        """Run a statement that may not be in a transaction."""
        run(self._url, sql)

    def notices(self, sql: str) -> list[str]:
        """Run a statement that may not be in a transaction, and return the details of what the server says of it."""
        details: list[str] = []

        def note(notice: psycopg.errors.Diagnostic) -> None:
            details.append(notice.message_detail or "")

        def work(raw: Raw) -> None:
            raw.add_notice_handler(note)
            try:
                raw.execute(sql)
            finally:
                raw.remove_notice_handler(note)

        with ERRORS:
            pool_of(self._url).lend(work, may_repeat=False)
        return details


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


def stay_on_this_server() -> None:
    _only_here.set()


def url_of(store: StoreId) -> str:
    """Return the address of the database that holds a store.

    Raises:
        Unavailable: the settings do not name its server.
    """
    main = env.database_url()
    if _only_here.is_set() or not (servers := env.servers()):
        return main
    if store.scope is Scope.VIEW:
        return _views.get(store.name, main)
    name = server_of(store)
    if not name:
        return main
    if name not in servers:
        raise Unavailable(
            f"memory database unavailable: {store.scope} {store.name!r} is on the server {name!r}, which "
            "[servers] in config.toml does not name"
        )
    return servers[name]


def server_of(store: StoreId) -> str:
    return assigned().get(store.text, "")


def assigned() -> dict[str, str]:
    """Return the servers by store, as ``project:<slug>``."""
    if _only_here.is_set() or not env.servers():
        return {}
    main = env.database_url()
    read_at, servers = _assigned.get(main, (0.0, {}))
    if not read_at or time.monotonic() - read_at > _CACHE_SECONDS:
        try:
            servers = dict(run(main, _READ))
        except ProgrammingError as error:
            if not faults.is_missing_table(error):
                raise
            servers = {}  # no store was ever assigned
        _assigned[main] = time.monotonic(), servers
    return servers


def assign(store: StoreId, server: str) -> None:
    main = env.database_url()
    run(main, _CREATE)
    if server:
        run(main, _PUT, [store.text, server])
    else:
        run(main, _REMOVE, [store.text])
    _assigned.clear()


def all_urls() -> list[str]:
    """Return the addresses of the hub's servers, the one with its own tables first."""
    main = env.database_url()
    if _only_here.is_set():
        return [main]
    return list(dict.fromkeys([main, *env.servers().values()]))


def note_view(name: str, url: str) -> None:
    """Remember where a view is: on the server of its store."""
    _views[name] = url


def location_of(store: StoreId) -> str:
    """Return the address of a store, for people, without a user and a password."""
    return f"{display_url(url_of(store))}#{store.text}"


@contextmanager
def connected(schema: str, alias: str = "store:template:new", *, url: str = "", role: str = "") -> Iterator[Any]:
    """Connect to a schema under an alias that only this thread has."""
    settings = {**connections.settings["default"], **connection_settings(url or env.database_url(), schema, role=role)}
    connection = load_backend(settings["ENGINE"]).DatabaseWrapper(settings, alias)
    connections[alias] = connection
    try:
        yield connection
    finally:
        connection.close()
        del connections[alias]
