"""A store that moves, as schemas: the one that leaves, and a draft of the one that arrives, have other names."""

# A schema without its name is a fence: a process that has the store open finds no table in it from that commit on.

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any

from django.db import ProgrammingError, transaction

from memoryhub.core.backends.base import Anchor, Departure
from memoryhub.core.backends.postgresql import anchors, servers, stores
from memoryhub.core.backends.postgresql.connecting import connected
from memoryhub.core.backends.postgresql.schemas import HEADS, direct, label_of, lock_of, quote, schema_of, shortened
from memoryhub.core.backends.postgresql.servers import place_of, url_of
from memoryhub.core.errors import Conflict, Invalid
from memoryhub.core.stores import rows
from memoryhub.core.stores.routing import current_alias
from memoryhub.core.stores.store_id import Scope, StoreId

_LEFT, _ARRIVING = "moved:", "arriving:"
_CREATE = (
    f"SELECT pg_advisory_xact_lock({lock_of(HEADS)}); CREATE SCHEMA IF NOT EXISTS {HEADS}; "
    f'CREATE TABLE IF NOT EXISTS {HEADS}.departures (store text COLLATE "C" PRIMARY KEY, departure text NOT NULL)'
)
_READ = f"SELECT departure FROM {HEADS}.departures WHERE store = %s"
_PUT = (
    f"INSERT INTO {HEADS}.departures VALUES (%s, %s) ON CONFLICT (store) DO UPDATE SET departure = excluded.departure"
)
_REMOVE = f"DELETE FROM {HEADS}.departures WHERE store = %s"
# A departure that an earlier version wrote has no ``kept``
_IS_KEPT = "COALESCE(CAST(departure AS json) ->> 'kept', 'true') = 'true'"
_REMOVE_OF = f"{_REMOVE} AND CAST(departure AS json) ->> 'epoch' = %s AND {_IS_KEPT} RETURNING departure"
_FORGET = f"{_REMOVE} AND NOT {_IS_KEPT}"
_COMMENTS = (
    "SELECT d.description FROM pg_namespace n JOIN pg_description d ON d.objoid = n.oid "
    "AND d.classoid = 'pg_namespace'::regclass WHERE starts_with(d.description, %s)"
)
_OWNER = (
    "SELECT pg_get_userbyid(nspowner), pg_get_userbyid(nspowner) = current_user FROM pg_namespace WHERE nspname = %s"
)


def departure(store: StoreId) -> Departure | None:
    try:
        found = direct(store).rows(_READ, [label_of(store)])
    except ProgrammingError:  # no store ever left
        return None
    return Departure(**json.loads(found[0][0])) if found else None


def prepare_to_leave(store: StoreId) -> None:
    direct(store).rows(_CREATE)


def leave(store: StoreId, departure: Departure) -> None:
    schema = schema_of(store)
    rows.execute("SET LOCAL ROLE NONE")
    rows.execute(_PUT, [label_of(store), json.dumps(asdict(departure))])
    rows.execute(f"ALTER SCHEMA {quote(schema)} RENAME TO {quote(_left(store))}")
    rows.execute(f"COMMENT ON SCHEMA {quote(_left(store))} IS %s", [_LEFT + label_of(store)])


def _left(store: StoreId) -> str:
    return shortened(f"moved_{schema_of(store)}")


def mark_left(store: StoreId) -> None:
    stores.forget_schema(store)


@contextmanager
def kept(store: StoreId) -> Iterator[None]:
    with _opened(_left(store), store):
        yield


@contextmanager
def _opened(schema: str, store: StoreId) -> Iterator[None]:
    with connected(schema, store.alias, url=url_of(store), role=_owner(schema, store)):
        token = current_alias.set(store.alias)
        try:
            yield
        finally:
            current_alias.reset(token)


def _owner(schema: str, store: StoreId) -> str:
    found = direct(store).rows(_OWNER, [schema])
    if not found:
        raise Invalid(f"the copy of {store.name!r} is gone; another move has replaced it")
    owner, is_own = found[0]
    return "" if is_own else str(owner)


def kept_stores() -> list[StoreId]:
    found = (text.removeprefix(_LEFT).split(":", 1) for (text,) in direct().rows(_COMMENTS, [_LEFT]))
    return [StoreId(Scope(scope), name) for scope, name in sorted(found)]


def come_back(store: StoreId, epoch: str) -> None:
    with _left_with(store, epoch) as (connection, _):
        connection.run(f"ALTER SCHEMA {quote(_left(store))} RENAME TO {quote(schema_of(store))}", ())
        connection.run(f"COMMENT ON SCHEMA {quote(schema_of(store))} IS %s", [label_of(store)])
    stores.forget_schema(store)


def remove_kept(store: StoreId, epoch: str) -> None:
    anchors.create_table(url_of(store))
    with _left_with(store, epoch) as (connection, departure):
        connection.run(f"DROP SCHEMA IF EXISTS {quote(_left(store))} CASCADE", ())
        connection.run(_PUT, [label_of(store), json.dumps(asdict(replace(departure, kept=False)))])
        connection.run(anchors.REMOVE_ROW, [label_of(store)])
        stores.drop_role(connection, store)
    anchors.remove_file(store)


# A transaction with the store's write lock, in which the mark of a move is removed
@contextmanager
def _left_with(store: StoreId, epoch: str) -> Iterator[tuple[Any, Departure]]:
    prepare_to_leave(store)
    with connected(schema_of(store), url=url_of(store)) as connection, transaction.atomic(using=connection.alias):
        found = connection.run(_REMOVE_OF, [label_of(store), epoch]).fetchall()
        if not found:
            raise Conflict(f"{store.scope} {store.name!r} was moved or came back meanwhile; run it again")
        yield connection, Departure(**json.loads(found[0][0]))


def forget(store: StoreId) -> None:
    direct(store).rows(_FORGET, [label_of(store)])


def drafts(store: StoreId) -> list[str]:
    end = f":{label_of(store)}"
    found = [text for (text,) in direct(store).rows(_COMMENTS, [_ARRIVING]) if text.endswith(end)]
    return sorted(text.removeprefix(_ARRIVING).removesuffix(end) for text in found)


def _draft(store: StoreId, epoch: str) -> str:
    return shortened(f"arriving_{re.sub('[^0-9a-z]', '', epoch)}_{schema_of(store)}")


def create_draft(store: StoreId, epoch: str) -> None:
    stores.create_schema(
        _draft(store, epoch), f"{_ARRIVING}{epoch}:{label_of(store)}", url=url_of(store), final=schema_of(store)
    )


@contextmanager
def draft(store: StoreId, epoch: str) -> Iterator[None]:
    with _opened(_draft(store, epoch), store):
        yield


def discard_draft(store: StoreId, epoch: str) -> None:
    direct(store).rows(f"DROP SCHEMA IF EXISTS {quote(_draft(store, epoch))} CASCADE")


def arrive(store: StoreId, epoch: str, anchor: Anchor) -> None:
    prepare_to_leave(store)
    if stores.exists(store):
        raise Conflict(f"there is a {store.scope} {store.name!r} in {place_of(url_of(store))} already")
    schema, label = schema_of(store), label_of(store)
    try:
        direct(store).rows(
            f"DROP SCHEMA IF EXISTS {quote(_left(store))} CASCADE; {_REMOVE}; "
            f"ALTER SCHEMA {quote(_draft(store, epoch))} RENAME TO {quote(schema)}; "
            f"COMMENT ON SCHEMA {quote(schema)} IS %s",
            [label, label],
        )
    except ProgrammingError as error:
        raise Conflict(f"the copy of {store.name!r} is gone; another move has used or replaced it") from error
    stores.forget_schema(store)
    anchors.replace(store, anchor)


assign = servers.assign
server = servers.server_of
stay_on_this_server = servers.stay_on_this_server
