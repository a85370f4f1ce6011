"""Several machines with one database: leases and secrets are rows, and the anchors show which stores have changed."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any

from django.db import DatabaseError, ProgrammingError

from memoryhub import env
from memoryhub.core.backends.postgresql import locations
from memoryhub.core.backends.postgresql.locations import HEADS, HUB, JOBS, Direct, direct, lock_of
from memoryhub.core.errors import Locked, Unavailable
from memoryhub.core.home_database import display_url
from memoryhub.core.stores.store_id import StoreId

logger = logging.getLogger(__name__)

SHARED = True
# What a presence is called: many processes can have one of the same name
_PRESENT = "present "

_SECRET = f"SELECT value FROM {HUB}.secrets WHERE name = %s"
_NEW_SECRET = f"INSERT INTO {HUB}.secrets VALUES (%s, %s) ON CONFLICT (name) DO NOTHING"
_HEADS = f"SELECT store, position, digest FROM {HEADS}.anchors"


@cache
def machine() -> str:
    return socket.gethostname()[:40]


def agreed_secret(name: str, proposal: str) -> str:
    try:
        rows = rows_of_hub(_SECRET, [name])
        if not rows:
            rows_of_hub(_NEW_SECRET, [name, proposal])
            rows = rows_of_hub(_SECRET, [name])
    except DatabaseError as error:
        raise Unavailable(f"the hub's secrets cannot be read: {error}") from error
    text: str = rows[0][0]
    return text


@contextmanager
def holding(name: str) -> Iterator[LeaseRow | None]:
    lease = acquire(name)
    if lease is None:
        yield None
        return
    try:
        yield lease
    except BaseException:
        lease.give_back(keep_text=True)
        raise
    lease.give_back()


@contextmanager
def inspect(name: str) -> Iterator[tuple[str, str]]:
    # One whose holder died is removed
    abandoned = "".join(text for (text,) in rows_of_hub(_REMOVE_PASSED, [name]))
    if abandoned:
        yield "", abandoned
    else:
        yield "".join(text for (text,) in rows_of_hub(_TEXT, [name])), ""


def texts() -> dict[str, str]:
    lease_texts = dict(rows_of_hub(_TEXTS))
    return {name: text for name, text in lease_texts.items() if text and not name.startswith(_PRESENT)}


def announce(name: str) -> ExitStack:
    presence = ExitStack()
    if lease := acquire(f"{_PRESENT}{name} {machine()} {os.getpid()} {time.time_ns()}"):
        presence.callback(lease.give_back)
    return presence


def is_present(name: str) -> bool:
    return any_held(f"{_PRESENT}{name} ")


# Listening for notifications would need a connection of its own, past a pooler
class _Heads:
    """The anchors of all stores, read by a thread while somebody asks for them."""

    _EVERY_SECONDS = 0.25
    _ASKED_SECONDS = 5.0
    # How long a further server that could not be asked is left alone: stores on others would wait for it each time
    _AWAY_SECONDS = 10.0

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._heads: dict[str, Any] = {}
        self._away_until: dict[str, float] = {}
        self._asked_at = 0.0
        self._reads = False

    def of(self, store: StoreId) -> object:
        with self._lock:
            self._asked_at = time.monotonic()
            if not self._reads:
                self._reads = True
                threading.Thread(target=self._keep_reading, name="heads", daemon=True).start()
        return self._heads.get(store.text)

    def _keep_reading(self) -> None:
        try:
            while True:
                self._look()
                time.sleep(self._EVERY_SECONDS)
                with self._lock:
                    if time.monotonic() - self._asked_at > self._ASKED_SECONDS:
                        self._reads = False
                        return
        except BaseException:
            self._reads = False  # the next one who asks starts another thread
            raise

    def _look(self) -> None:
        heads: dict[str, Any] = {}
        for url in locations.all_urls():
            if time.monotonic() >= self._away_until.get(url, 0.0):
                heads |= self._heads_on(url)
        self._heads = heads

    # The server from which a store has moved keeps its anchor until the move is confirmed
    def _heads_on(self, url: str) -> dict[str, Any]:
        main = env.database_url()
        urls = env.servers()
        try:
            assigned = locations.assigned()
            heads = {name: head for name, *head in Direct(url).rows(_HEADS)}
        except ProgrammingError:  # no store there was ever written to
            return {}
        except Exception as error:  # noqa: BLE001 - pages of other stores must follow them all the same
            if url not in self._away_until:
                logger.warning("changes of stores on %s are not noticed: %s", display_url(url), error)
            self._away_until[url] = 0.0 if url == main else time.monotonic() + self._AWAY_SECONDS
            return {}
        self._away_until.pop(url, None)
        return {name: head for name, head in heads.items() if url == urls.get(assigned.get(name, ""), main)}


@cache
def _heads(_process: int, _url: str) -> _Heads:
    return _Heads()


def stamp(store: StoreId) -> object:
    return _heads(os.getpid(), env.database_url()).of(store)


# A lease is a row with a time by the server's clock, which a thread of its holder moves on. An advisory lock of a
# session would be lost behind a pooler, and one of a transaction would keep it open for as long as a job runs, so that
# VACUUM removes nothing meanwhile.

LEASE_SECONDS = 20.0
RENEW_SECONDS = 5.0

_CREATE = (
    f"SELECT pg_advisory_xact_lock({lock_of(HUB)}); CREATE SCHEMA IF NOT EXISTS {HUB}; "
    f'CREATE TABLE IF NOT EXISTS {HUB}.leases (name text COLLATE "C" PRIMARY KEY, holder text NOT NULL, '
    "until timestamptz NOT NULL, content text NOT NULL); "
    f'CREATE TABLE IF NOT EXISTS {HUB}.secrets (name text COLLATE "C" PRIMARY KEY, value text NOT NULL)'
)
_NEXT = f"clock_timestamp() + interval '{LEASE_SECONDS} seconds'"
# One that ends days ahead is of a holder that died before the server's clock was set back: no lease lasts so long
_PASSED = "(l.until < clock_timestamp() OR l.until > clock_timestamp() + interval '2 days')"
# A lease that is taken over keeps the text of the holder that died, until it is written. To ask again does no harm
_ACQUIRE = (
    f"INSERT INTO {HUB}.leases AS l VALUES (%s, %s, {_NEXT}, '') ON CONFLICT (name) "
    f"DO UPDATE SET holder = excluded.holder, until = excluded.until WHERE {_PASSED} OR l.holder = excluded.holder "
    "RETURNING content"
)
_RENEW = f"UPDATE {HUB}.leases SET until = {_NEXT} WHERE holder = ANY(%s) RETURNING holder"
_WRITE = f"UPDATE {HUB}.leases SET content = %s, until = {_NEXT} WHERE holder = %s AND name = %s RETURNING name"
_RELEASE = f"DELETE FROM {HUB}.leases WHERE holder = %s AND name = %s"
_EXPIRE = f"UPDATE {HUB}.leases SET until = '-infinity' WHERE holder = %s AND name = %s"
_REMOVE_PASSED = f"DELETE FROM {HUB}.leases AS l WHERE name = %s AND {_PASSED} RETURNING content"
_TEXT = f"SELECT content FROM {HUB}.leases AS l WHERE name = %s AND NOT {_PASSED}"
_TEXTS = f"SELECT name, content FROM {HUB}.leases"
_ANY = f"SELECT 1 FROM {HUB}.leases AS l WHERE starts_with(name, %s) AND NOT {_PASSED} LIMIT 1"


def rows_of_hub(sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    """Run a statement on the tables that the machines share, which are created at their first use."""
    try:
        return direct().rows(sql, parameters)
    except ProgrammingError:
        direct().rows(_CREATE)
        return direct().rows(sql, parameters)


def acquire(name: str) -> LeaseRow | None:
    holder = secrets.token_hex(8)
    rows = rows_of_hub(_ACQUIRE, [name, holder])
    return LeaseRow(name, holder, rows[0][0]) if rows else None


def any_held(prefix: str) -> bool:
    return bool(rows_of_hub(_ANY, [prefix]))


class LeaseRow:
    # ``holder`` is of this lease alone: this process may hold another one of the name, after this one was lost
    def __init__(self, name: str, holder: str, abandoned: str) -> None:
        self.name = name
        self.holder = holder
        self.abandoned = abandoned
        self._keeper = _keeper(env.database_url(), os.getpid())
        self._keeper.add(self)

    def write(self, text: str) -> None:
        if not rows_of_hub(_WRITE, [text, self.holder, self.name]):
            raise Locked(f"the lease of {self.name} was lost: this process could not renew it for {LEASE_SECONDS:g} s")

    def give_back(self, *, keep_text: bool = False) -> None:
        self._keeper.remove(self)
        try:
            rows_of_hub(_EXPIRE if keep_text else _RELEASE, [self.holder, self.name])
        except DatabaseError as error:
            logger.warning("the lease of %s was not released and will expire: %s", self.name, error)


class _Keeper:
    """Renews the leases of this process, all at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: set[LeaseRow] = set()
        self._runs = False

    def add(self, lease: LeaseRow) -> None:
        with self._lock:
            self._held.add(lease)
            if not self._runs:
                self._runs = True
                threading.Thread(target=self._keep, name="leases", daemon=True).start()

    def remove(self, lease: LeaseRow) -> None:
        with self._lock:
            self._held.discard(lease)

    def _keep(self) -> None:
        while True:
            time.sleep(RENEW_SECONDS)
            with self._lock:
                held = list(self._held)
                if not held:
                    self._runs = False
                    return
            try:
                self._renew(held)
            except Exception as error:  # noqa: BLE001 - this thread must not end while there are leases
                logger.warning("leases could not be renewed: %s", error)

    def _renew(self, held: list[LeaseRow]) -> None:
        renewed = {holder for (holder,) in rows_of_hub(_RENEW, [[lease.holder for lease in held]])}
        for lease in held:
            if lease.holder not in renewed:
                self.remove(lease)
                logger.error("the lease of %s was lost", lease.name)


@cache
def _keeper(_url: str, _process: int) -> _Keeper:
    return _Keeper()


_OLDEST = 15
# The part of the allowed connections from which on a problem is reported
_MOST_USED = 0.8
_WHERE = "the database"

Problem = tuple[str, str, str]

_SERVER = (
    "SELECT current_setting('server_version_num')::int / 10000, pg_encoding_to_char(encoding), "
    "has_database_privilege(current_database(), 'CREATE') FROM pg_database WHERE datname = current_database()"
)
_CONNECTIONS = (
    "SELECT count(*), current_setting('max_connections')::int "
    "- current_setting('superuser_reserved_connections')::int FROM pg_stat_activity "
    "WHERE backend_type = 'client backend'"
)
_SETTINGS = "SELECT current_setting('synchronous_commit'), pg_is_in_recovery()"
# Stores whose schema belongs to a role that the hub can't become, or that may use other schemas of the hub
_ROLES = """
SELECT n.nspname, o.rolname, pg_has_role(current_user, o.oid, 'MEMBER'),
    o.rolname <> current_user AND EXISTS (SELECT 1 FROM pg_namespace h WHERE h.nspname IN (%s, %s, %s)
        AND has_schema_privilege(o.oid, h.oid, 'USAGE'))
FROM pg_namespace n JOIN pg_roles o ON o.oid = n.nspowner
JOIN pg_description d ON d.objoid = n.oid AND d.classoid = 'pg_namespace'::regclass
WHERE d.description ~ '^(project|org|global):' ORDER BY n.nspname
"""


def server_address() -> str:
    return display_url(env.database_url())


def server_problems() -> Iterator[Problem]:
    """Yield where, what is wrong, and its repair."""
    try:
        ((version, encoding, creates),) = direct().rows(_SERVER)
    except DatabaseError as error:
        yield (
            f"{_WHERE} at {display_url(env.database_url())}",
            f"it can't be reached: {str(error).strip()}",
            f"start the server, or correct {env.DATABASE_VARIABLE}; the hub reconnects automatically",
        )
        return
    if version < _OLDEST:
        yield _WHERE, f"it is PostgreSQL {version}", f"the hub needs version {_OLDEST} or newer: upgrade the server"
    if encoding != "UTF8":
        yield (
            _WHERE,
            f"its encoding is {encoding}",
            "create a database with ENCODING 'UTF8', and move everything there with `memory-hub move --all --to URL`",
        )
    if not creates:
        yield (
            _WHERE,
            "the hub's role may not create schemas there",
            "GRANT CREATE ON DATABASE to the role, or let it own the database",
        )
    yield from _setting_problems()
    yield from _role_problems()


def _setting_problems() -> Iterator[Problem]:
    ((synchronous, is_standby),) = direct().rows(_SETTINGS)
    if synchronous == "off":
        what = "synchronous_commit is off: a write that was acknowledged can be lost when the server stops"
        yield _WHERE, what, "set it to on, in the server's settings or those of the hub's role"
    if is_standby:
        yield _WHERE, "it is a standby, which takes no writes", "name the primary, or promote this server"
    ((used, most),) = direct().rows(_CONNECTIONS)
    if used > most * _MOST_USED:
        what = f"{used} of {most} connections are used"
        yield _WHERE, what, "raise max_connections, or put a pooler in transaction mode before it, such as PgBouncer"


def _role_problems() -> Iterator[Problem]:
    for schema, owner, is_member, reaches in direct().rows(_ROLES, [HUB, JOBS, HEADS]):
        if not is_member:
            what = f"it belongs to the role {owner}, which the hub can't become"
            yield f"schema {schema}", what, f'GRANT "{owner}" TO the hub\'s role'
        elif reaches:
            what = f"its role {owner} may use the hub's own schemas"
            yield f"schema {schema}", what, f'REVOKE ALL ON SCHEMA {HUB}, {JOBS}, {HEADS} FROM "{owner}", PUBLIC'
