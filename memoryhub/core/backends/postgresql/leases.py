"""Leases as rows with a time by the server's clock, which a thread of their holder moves on.

An advisory lock of a session would be lost behind a pooler, and one of a transaction would keep it open for as long as
a job runs, so that VACUUM removes nothing meanwhile.
"""

from __future__ import annotations

import logging
import os
import secrets
import threading
import time
from collections.abc import Sequence
from functools import cache
from typing import Any

from django.db import DatabaseError, ProgrammingError

from memoryhub import env
from memoryhub.core.backends.postgresql.schemas import HUB, direct, lock_of
from memoryhub.core.errors import Locked

logger = logging.getLogger(__name__)

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
_LEFT = f"DELETE FROM {HUB}.leases AS l WHERE name = %s AND {_PASSED} RETURNING content"
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


def acquire(name: str) -> Lease | None:
    holder = secrets.token_hex(8)
    found = rows_of_hub(_ACQUIRE, [name, holder])
    return Lease(name, holder, found[0][0]) if found else None


def take_left(name: str) -> str:
    """Remove a lease whose holder died, and return its text; "" if there is none."""
    found = rows_of_hub(_LEFT, [name])
    return found[0][0] if found else ""


def text_of(name: str) -> str:
    found = rows_of_hub(_TEXT, [name])
    return found[0][0] if found else ""


def texts() -> dict[str, str]:
    return dict(rows_of_hub(_TEXTS))


def any_held(prefix: str) -> bool:
    return bool(rows_of_hub(_ANY, [prefix]))


class Lease:
    # ``holder`` is of this lease alone: this process may hold another one of the name, after this one was lost
    def __init__(self, name: str, holder: str, left: str) -> None:
        self.name, self.holder, self.left = name, holder, left
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
        self._held: set[Lease] = set()
        self._runs = False

    def add(self, lease: Lease) -> None:
        with self._lock:
            self._held.add(lease)
            if not self._runs:
                self._runs = True
                threading.Thread(target=self._keep, name="leases", daemon=True).start()

    def remove(self, lease: Lease) -> None:
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

    def _renew(self, held: list[Lease]) -> None:
        renewed = {holder for (holder,) in rows_of_hub(_RENEW, [[lease.holder for lease in held]])}
        for lease in held:
            if lease.holder not in renewed:
                self.remove(lease)
                logger.error("the lease of %s was lost", lease.name)


@cache
def _keeper(_url: str, _process: int) -> _Keeper:
    return _Keeper()
