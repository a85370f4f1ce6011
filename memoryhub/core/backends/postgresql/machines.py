"""Several machines with one database: leases and secrets are rows, and the anchors show which stores have changed."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from django.db import DatabaseError, ProgrammingError

from memoryhub import env
from memoryhub.core.backends.postgresql import leases, servers
from memoryhub.core.backends.postgresql.leases import Lease
from memoryhub.core.backends.postgresql.schemas import HEADS, HUB, Direct, label_of
from memoryhub.core.errors import Unavailable
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


def agreed_secret(name: str, own: str) -> str:
    try:
        found = leases.rows_of_hub(_SECRET, [name])
        if not found:
            leases.rows_of_hub(_NEW_SECRET, [name, own])
            found = leases.rows_of_hub(_SECRET, [name])
    except DatabaseError as error:
        raise Unavailable(f"the hub's secrets cannot be read: {error}") from error
    text: str = found[0][0]
    return text


@contextmanager
def holding(name: str) -> Iterator[Lease | None]:
    lease = leases.acquire(name)
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
    left = leases.take_left(name)
    yield ("", left) if left else (leases.text_of(name), "")


def texts() -> dict[str, str]:
    return {name: text for name, text in leases.texts().items() if text and not name.startswith(_PRESENT)}


class _Presence:
    def __init__(self, name: str) -> None:
        self._lease = leases.acquire(f"{_PRESENT}{name} {machine()} {os.getpid()} {time.time_ns()}")

    def close(self) -> None:
        if self._lease:
            self._lease.give_back()


def announce(name: str) -> _Presence:
    return _Presence(name)


def is_present(name: str) -> bool:
    return leases.any_held(f"{_PRESENT}{name} ")


# Listening for notifications would need a connection of its own, past a pooler
class _Heads:
    """The anchors of all stores, read by a thread while somebody asks for them."""

    _EVERY_SECONDS = 0.25
    _ASKED_SECONDS = 5.0
    # How long a further server that could not be asked is left alone: stores on others would wait for it each time
    _AWAY_SECONDS = 10.0

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[str, Any] = {}
        self._away_until: dict[str, float] = {}
        self._asked_at = 0.0
        self._reads = False

    def of(self, store: StoreId) -> object:
        with self._lock:
            self._asked_at = time.monotonic()
            if not self._reads:
                self._reads = True
                threading.Thread(target=self._read, name="heads", daemon=True).start()
        return self._found.get(label_of(store))

    def _read(self) -> None:
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
        found: dict[str, Any] = {}
        for url in servers.all_urls():
            if time.monotonic() >= self._away_until.get(url, 0.0):
                found |= self._heads_on(url)
        self._found = found

    # The server from which a store has moved keeps its anchor until the move is confirmed
    def _heads_on(self, url: str) -> dict[str, Any]:
        main, urls = env.database_url(), env.servers()
        try:
            assigned = servers.assigned()
            heads = {name: head for name, *head in Direct(url).rows(_HEADS)}
        except ProgrammingError:  # no store there was ever written to
            return {}
        except Exception as error:  # noqa: BLE001 - pages of other stores must follow them all the same
            if url not in self._away_until:
                logger.warning("changes of stores on %s are not noticed: %s", servers.place_of(url), error)
            self._away_until[url] = 0.0 if url == main else time.monotonic() + self._AWAY_SECONDS
            return {}
        self._away_until.pop(url, None)
        return {name: head for name, head in heads.items() if url == urls.get(assigned.get(name, ""), main)}


@cache
def _heads(_process: int, _url: str) -> _Heads:
    return _Heads()


def stamp(store: StoreId) -> object:
    return _heads(os.getpid(), env.database_url()).of(store)
