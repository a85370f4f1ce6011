"""A second schema beside a store's, in the same database."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connections

from memoryhub.core import clock
from memoryhub.core.backends.base import Source
from memoryhub.core.backends.postgresql import leases, stores
from memoryhub.core.backends.postgresql.connecting import connected
from memoryhub.core.backends.postgresql.schemas import direct, quote, schema_of
from memoryhub.core.backends.postgresql.servers import url_of
from memoryhub.core.stores import rows
from memoryhub.core.stores.routing import current_alias, require_current_alias
from memoryhub.core.stores.store_id import StoreId, key_of

ALIAS = "store:view:being-made"
# Comment of an unfinished schema, before the time at which it was made
DRAFT = "draft:"
# A view that is being made, and a copy that only this process uses: an erasure removes the former alone
DRAFT_NAME, SCRATCH = "draft", "scratch"


@contextmanager
def temporary_copy(store: StoreId) -> Iterator[None]:
    name = draft_name(store, SCRATCH)
    lease = leases.acquire(name)  # else a removal of text would remove the copy, as one whose process was killed
    try:
        make_draft(name, store)
        try:
            with opened(name, store):
                yield
        finally:
            direct(store).rows(f"DROP SCHEMA IF EXISTS {quote(name)} CASCADE")
    finally:
        if lease:
            lease.give_back()


def draft_name(store: StoreId, prefix: str) -> str:
    return f"{prefix}_{key_of(store)}_{os.getpid()}_{time.monotonic_ns()}"


def make_draft(name: str, store: StoreId, *, empty: bool = False) -> None:
    comment = f"{DRAFT}{clock.now().timestamp():.0f}"
    stores.create_schema(name, comment, url=url_of(store), role=role_of(store), empty=empty)


def role_of(store: StoreId) -> str:
    found = stores.identity(store)
    return found.owner if found else ""


@contextmanager
def opened(name: str, store: StoreId) -> Iterator[None]:
    with connected(name, ALIAS, url=url_of(store), role=role_of(store)):
        token = current_alias.set(ALIAS)
        try:
            yield
        finally:
            current_alias.reset(token)


@contextmanager
def attached(source: Source, *, write: bool = False) -> Iterator[None]:
    if not isinstance(source, StoreId):
        raise TypeError("only stores are attached in PostgreSQL")
    connection: Any = connections[require_current_alias()]
    connection.attached, connection.locks_attached = schema_of(source), write
    try:
        yield
    finally:
        connection.attached, connection.locks_attached = "", False


def allow_gaps() -> None:
    rows.execute("DROP TRIGGER raw_events_no_gap ON raw_events")
    for table, name in rows.fetch(
        "SELECT c.relname, o.conname FROM pg_constraint o JOIN pg_class c ON c.oid = o.conrelid "
        "WHERE o.contype = 'f' AND o.connamespace = quote_ident(current_schema())::regnamespace"
    ):
        rows.execute(f"ALTER TABLE {quote(table)} DROP CONSTRAINT {quote(name)}")
