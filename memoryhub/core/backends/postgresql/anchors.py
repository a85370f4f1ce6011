"""The anchor of a store: a row in a schema of its own, which no store's role may change, and a file in this home.

The row is lost with the log when a server fails and its replica had not received them yet; the file is not. It counts
only for the schema and the generation of the row that it was written for: another machine may have restored or removed
the store.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.db import OperationalError, ProgrammingError, connections

from memoryhub import env
from memoryhub.core import home_database
from memoryhub.core.backends.base import Anchor
from memoryhub.core.backends.postgresql import faults
from memoryhub.core.backends.postgresql.locations import (
    HEADS,
    Direct,
    direct,
    lock_of,
    quote,
    schema_of,
    url_of,
)
from memoryhub.core.disk import make_folder
from memoryhub.core.errors import Locked
from memoryhub.core.stores.routing import current_alias
from memoryhub.core.stores.store_id import StoreId, folder_of

_CREATE = (
    f"SELECT pg_advisory_xact_lock({lock_of(HEADS)}); CREATE SCHEMA IF NOT EXISTS {HEADS}; "
    f'CREATE TABLE IF NOT EXISTS {HEADS}.anchors (store text COLLATE "C" PRIMARY KEY, '
    'position bigint NOT NULL, digest text COLLATE "C" NOT NULL, generation bigint NOT NULL DEFAULT 0)'
)
_ROW = (
    "SELECT coalesce(a.position, 0), coalesce(a.digest, ''), coalesce(a.generation, 0), "
    "coalesce(to_regnamespace(%s)::oid, 0) FROM (SELECT %s AS store) AS wanted "
    f"LEFT JOIN {HEADS}.anchors a USING (store)"
)
# An anchor may lag behind its log, so it need not be on the disk when a write is acknowledged
_ADVANCE = (
    f"SET LOCAL lock_timeout TO '1s'; SET LOCAL synchronous_commit TO off; INSERT INTO {HEADS}.anchors "
    "VALUES (%s, %s, %s, %s) ON CONFLICT (store) DO UPDATE SET position = excluded.position, digest = excluded.digest "
    "WHERE anchors.position < excluded.position AND anchors.generation = excluded.generation RETURNING 1"
)
_REPLACE = (
    f"SET LOCAL lock_timeout TO '1s'; INSERT INTO {HEADS}.anchors VALUES (%s, %s, %s, 1) ON CONFLICT (store) DO UPDATE "
    "SET position = excluded.position, digest = excluded.digest, generation = anchors.generation + 1 "
    "RETURNING generation, coalesce(to_regnamespace(%s)::oid, 0)"
)
# In the transaction that removes a store: an anchor without a store means that the store is lost
REMOVE_ROW = f"DELETE FROM {HEADS}.anchors WHERE store = %s"
_FILE = "acknowledged"
_WIDTH = 160


@dataclass(frozen=True, slots=True)
class _AnchoredHead:
    position: int
    digest: str
    generation: int
    # The store's schema; 0 if there is none
    oid: int


def exists(store: StoreId) -> bool:
    return read(store) is not None


def read(store: StoreId) -> Anchor | None:
    return max(acknowledged(store), key=lambda anchor: anchor.position, default=None)


def acknowledged(store: StoreId) -> list[Anchor]:
    row = _read_row(store)
    if row is None:
        return []
    heads = [row]
    with suppress(FileNotFoundError, ValueError):  # there is none, or a power cut has left part of one
        generation, oid, position, digest = _anchor_file(store).read_text("ascii").split()
        copy = _AnchoredHead(int(position), digest, int(generation), int(oid))
        if copy.oid == row.oid and copy.generation >= row.generation:
            heads.append(copy)
            if copy.generation > row.generation:
                heads = [copy]  # a row of an earlier generation is what a recovery has brought back
    return [Anchor(head.position, head.digest) for head in heads if head.position]


def _read_row(store: StoreId) -> _AnchoredHead | None:
    parameters = [quote(schema_of(store)), store.text]
    if current_alias() == store.alias:
        connection: Any = connections[store.alias]
        if connection.in_atomic_block:
            # Not over a second connection: of a small pool others may hold the rest, and wait for this transaction
            return _AnchoredHead(*connection.run_unrestricted(_ROW, parameters).fetchone())
    try:
        return _AnchoredHead(*direct(store).rows(_ROW, parameters)[0])
    except ProgrammingError:  # no anchor was ever written
        return None


def advance(store: StoreId, anchor: Anchor, *, holds: Callable[[], bool]) -> None:
    row = _read_row(store)
    if row is None:
        create_table(url_of(store))
        row = _AnchoredHead(*direct(store).rows(_ROW, [quote(schema_of(store)), store.text])[0])
    if row.position >= anchor.position or not holds():
        return
    # Does nothing if another process was faster, or has replaced the anchor since
    values = [store.text, anchor.position, anchor.digest, row.generation]
    if _put(store, _ADVANCE, values):
        _write_file(store, _AnchoredHead(anchor.position, anchor.digest, row.generation, row.oid))


def replace(store: StoreId, anchor: Anchor) -> None:
    create_table(url_of(store))
    values = [store.text, anchor.position, anchor.digest, quote(schema_of(store))]
    ((generation, oid),) = _put(store, _REPLACE, values)
    _write_file(store, _AnchoredHead(anchor.position, anchor.digest, generation, oid))


def _put(store: StoreId, sql: str, values: list[Any]) -> list[tuple[Any, ...]]:
    try:
        return direct(store).rows(sql, values)
    except OperationalError as error:
        if faults.is_locked(error):
            raise Locked(f"the anchor of {store.name!r} is locked by another process") from error
        raise


def create_table(url: str) -> None:
    Direct(url).rows(_CREATE)


def remove(store: StoreId) -> None:
    remove_file(store)
    try:
        direct(store).rows(REMOVE_ROW, [store.text])
    except ProgrammingError:
        return


def remove_file(store: StoreId) -> None:
    """Remove the copy in this home of an anchor whose row is removed: it counts for nothing without it."""
    _anchor_file(store).unlink(missing_ok=True)


def _anchor_file(store: StoreId) -> Path:
    return folder_of(store) / _FILE


# Overwritten in place, and not locked: of several writers' positions any is one that was acknowledged
def _write_file(store: StoreId, head: _AnchoredHead) -> None:
    home_database.remember(env.database_url())
    line = f"{head.generation} {head.oid} {head.position} {head.digest}".ljust(_WIDTH - 1) + "\n"
    path = _anchor_file(store)
    make_folder(path.parent)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        os.pwrite(descriptor, line.encode(), 0)
    finally:
        os.close(descriptor)
