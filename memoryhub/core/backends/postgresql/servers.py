"""Which of a hub's servers has a store: a row beside the hub's own tables; none if the store is there too."""

from __future__ import annotations

import threading
import time
from functools import cache

import psycopg
from django.db import ProgrammingError

from memoryhub import env
from memoryhub.core.backends.postgresql import faults
from memoryhub.core.backends.postgresql.pool import run
from memoryhub.core.errors import Unavailable
from memoryhub.core.stores.store_id import Scope, StoreId

# How long this process believes what it has read. A store that was moved meanwhile is fenced where it was.
_KNOWN_SECONDS = 1.0
_SCHEMA = "heads"
_CREATE = (
    f"SELECT pg_advisory_xact_lock(hashtext('{_SCHEMA}')); "
    f"CREATE SCHEMA IF NOT EXISTS {_SCHEMA}; CREATE TABLE IF NOT EXISTS {_SCHEMA}.places "
    '(store text COLLATE "C" PRIMARY KEY, server text NOT NULL)'
)
_PUT = f"INSERT INTO {_SCHEMA}.places VALUES (%s, %s) ON CONFLICT (store) DO UPDATE SET server = excluded.server"
_REMOVE = f"DELETE FROM {_SCHEMA}.places WHERE store = %s"
_READ = f"SELECT store, server FROM {_SCHEMA}.places"

_known: dict[str, tuple[float, dict[str, str]]] = {}
_views: dict[str, str] = {}
# Set in a process that works on one server, whatever was recorded
_only_here = threading.Event()


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
    read_at, found = _known.get(main, (0.0, {}))
    if not read_at or time.monotonic() - read_at > _KNOWN_SECONDS:
        found = _read(main)
        _known[main] = time.monotonic(), found
    return found


def _read(main: str) -> dict[str, str]:
    try:
        return dict(run(main, _READ))
    except ProgrammingError as error:
        if faults.is_missing_table(error):  # no store was ever assigned
            return {}
        raise


def assign(store: StoreId, server: str) -> None:
    main = env.database_url()
    run(main, _CREATE)
    if server:
        run(main, _PUT, [store.text, server])
    else:
        run(main, _REMOVE, [store.text])
    _known.clear()


def all_urls() -> list[str]:
    """Return the addresses of the hub's servers, the one with its own tables first."""
    main = env.database_url()
    return list(dict.fromkeys([main, *([] if _only_here.is_set() else env.servers().values())]))


def note_view(name: str, url: str) -> None:
    """Remember where a view is: on the server of its store."""
    _views[name] = url


def location_of(store: StoreId) -> str:
    """Return the address of a store, for people, without a user and a password."""
    return f"{place_of(url_of(store))}#{store.text}"


@cache
def place_of(url: str) -> str:
    """Return the address of a database without its user and password."""
    parts = psycopg.conninfo.conninfo_to_dict(url)
    port = f":{parts['port']}" if parts.get("port") else ""
    return f"postgresql://{parts.get('host', '')}{port}/{parts.get('dbname', '')}"
