"""The life of stores as schemas, and their two places while they move."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from django.db import DatabaseError, ProgrammingError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from memoryhub import env
from memoryhub.core import clock, home_database
from memoryhub.core.backends.base import Anchor, Departure
from memoryhub.core.backends.postgresql import anchors, faults, locations
from memoryhub.core.backends.postgresql.locations import (
    HEADS,
    HUB,
    JOBS,
    Direct,
    connected,
    direct,
    location_of,
    lock_of,
    locked,
    quote,
    schema_of,
    shortened,
    url_of,
)
from memoryhub.core.backends.postgresql.options import connection_settings
from memoryhub.core.backends.postgresql.pool import ERRORS, pool_of
from memoryhub.core.backends.postgresql.structure import template_text
from memoryhub.core.disk import make_folder, replacing
from memoryhub.core.errors import ConflictError, Damaged, Invalid, Unavailable
from memoryhub.core.stores import rows
from memoryhub.core.stores.routing import use_alias
from memoryhub.core.stores.store_id import FOLDERS, SLUG, Scope, StoreId, folder_of

THING = "schema"
HUB_NAME = "the hub's database"
QUEUE_NAME = "the job queue"
_SCHEMAS = {"default": HUB, "jobs": JOBS}
# How long this process believes that a schema is there
_CACHE_SECONDS = 1.0

_FIND = (
    "SELECT n.oid, CASE WHEN n.nspowner = r.oid THEN '' ELSE pg_get_userbyid(n.nspowner)::text END, "
    "NOT EXISTS (SELECT 1 FROM pg_class c WHERE c.relnamespace = n.oid), "
    "coalesce(obj_description(n.oid, 'pg_namespace'), '') "
    "FROM pg_namespace n JOIN pg_roles r ON r.rolname = current_user WHERE n.nspname = %s"
)

_MAY_CREATE_ROLES = "SELECT current_database(), rolsuper OR rolcreaterole FROM pg_roles WHERE rolname = current_user"
_SIZES = (
    "SELECT coalesce(sum(pg_relation_size(oid)), 0)::bigint, coalesce(sum(pg_indexes_size(oid)), 0)::bigint, "
    "coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class "
    "WHERE relkind = 'r' AND relnamespace = to_regnamespace(%s)"
)


@dataclass(frozen=True, slots=True)
class StoreSchema:
    oid: int
    owner: str
    is_empty: bool
    # Its comment
    label: str


_cached_schemas: dict[tuple[str, str], tuple[float, StoreSchema]] = {}


def exists(store: StoreId) -> bool:
    return _find_schema(store) is not None


def names(scope: Scope) -> list[str]:
    prefix = f"{scope}:"
    labels = {label for _, label in direct().labelled(prefix)}
    labels.update(label for label in locations.assigned() if label.startswith(prefix))
    return sorted(filter(SLUG.fullmatch, (label.removeprefix(prefix) for label in labels)))


def identity(store: StoreId) -> StoreSchema | None:
    schema = _find_schema(store)
    if schema and schema.is_empty:
        raise Damaged(
            f"memory database unavailable: the schema of {store.name!r} is empty; "
            "run `memory-hub doctor` for ways to restore it",
            store=store.name,
        )
    return schema and replace(schema)


def _find_schema(store: StoreId) -> StoreSchema | None:
    key = url_of(store), schema_of(store)
    read_at, cached = _cached_schemas.get(key, (0.0, None))
    if cached and time.monotonic() - read_at < _CACHE_SECONDS:
        return cached
    _cached_schemas.pop(key, None)
    rows_of_schema = Direct(key[0]).rows(_FIND, [key[1]])
    if not rows_of_schema:
        return None
    schema = StoreSchema(*rows_of_schema[0])
    if schema.label.partition("@")[0] != store.text:
        raise Invalid(f"{store.scope} id {store.name!r} can't be used: another store's schema has the same short name")
    _cached_schemas[key] = time.monotonic(), schema
    return schema


def forget_schema(store: StoreId) -> None:
    """Look for a schema again, instead of believing for a second what this process knows."""
    _cached_schemas.pop((url_of(store), schema_of(store)), None)


def settings(store: StoreId) -> dict[str, Any]:
    schema = _find_schema(store)
    role = schema.owner if schema else ""
    return {**connections.settings["default"], **connection_settings(url_of(store), schema_of(store), role=role)}


@contextmanager
def _explaining_refusals() -> Iterator[None]:
    try:
        yield
    except DatabaseError as error:
        if faults.is_refused(error):
            raise Unavailable(
                f"memory database unavailable: the server refuses to create a store ({error}); "
                "let the hub's role own the database, or GRANT CREATE ON DATABASE to it"
            ) from error
        raise


@_explaining_refusals()
def create(store: StoreId) -> None:
    anchors.create_table(url_of(store))
    create_schema(schema_of(store), store.text, url=url_of(store))
    forget_schema(store)
    home_database.remember(env.database_url())


@_explaining_refusals()
def create_schema(
    name: str, label: str, *, url: str, role: str | None = None, empty: bool = False, final: str = ""
) -> None:
    """Create a schema with the tables of a store, unless it is there; by default with a role of its own.

    Args:
        name: of the schema.
        label: its comment.
        url: of the database.
        role: its owner; "" for the hub's own role.
        empty: whether it gets no tables.
        final: the name that it will have, after which its role is named; default: ``name``.
    """
    text = "" if empty else template_text()
    with connected(name, url=url) as connection, transaction.atomic(using=connection.alias):
        if connection.run("SELECT 1 FROM pg_namespace WHERE nspname = %s", [name]).fetchone():
            return
        owner = _new_role(connection, final or name) if role is None else role
        authorization = f" AUTHORIZATION {quote(owner)}" if owner else ""
        connection.run(f"CREATE SCHEMA {quote(name)}{authorization}", ())
        connection.run(f"COMMENT ON SCHEMA {quote(name)} IS %s", [label])
        if owner:
            connection.run(f"SET LOCAL ROLE {quote(owner)}", ())
        with connection.cursor() as cursor:
            cursor.execute(text or "SELECT 1")


# A role of its own for each store, where the hub may create roles: then the server refuses it other schemas
def _new_role(connection: Any, schema: str) -> str:
    database, may_create = connection.run(_MAY_CREATE_ROLES, ()).fetchone()
    if not may_create:
        return ""
    name = _role_of(database, schema)
    if not connection.run("SELECT 1 FROM pg_roles WHERE rolname = %s", [name]).fetchone():
        connection.run(f"CREATE ROLE {quote(name)} NOLOGIN", ())
    connection.run(f"GRANT {quote(name)} TO CURRENT_USER", ())
    return name


def _role_of(database: str, schema: str) -> str:
    return shortened(f"hub_{database}_{schema}")


def drop_role(connection: Any, store: StoreId) -> None:
    """Remove the role of a store whose schema is gone in this transaction, unless a copy belongs to it."""
    name = _role_of(connection.run("SELECT current_database()", ()).fetchone()[0], schema_of(store))
    if connection.run("SELECT 1 FROM pg_roles WHERE rolname = %s", [name]).fetchone():
        with suppress(DatabaseError), transaction.atomic(using=connection.alias):
            connection.run(f"DROP ROLE {quote(name)}", ())


def recreate(store: StoreId) -> str:
    schema = _find_schema(store)
    if schema and not schema.is_empty:
        return ""
    problem = "the store's schema was gone"
    if schema:
        problem = "the store's schema was empty"
        direct(store).rows(f"DROP SCHEMA {quote(schema_of(store))}")
    create(store)
    return problem


def upgrading(store: StoreId) -> AbstractContextManager[None]:
    return locked(f"upgrade {schema_of(store)}", url_of(store))


def back_up(store: StoreId, *, reason: str) -> None:
    folder = env.prepare_home() / "backups" / FOLDERS[store.scope] / store.name
    make_folder(folder)
    path = folder / f"{clock.file_stamp()}-{reason}.csv.gz"
    pool = pool_of(url_of(store))
    raw = pool.take()
    try:
        events = f"SELECT * FROM {quote(schema_of(store))}.raw_events ORDER BY position"
        copy = f"COPY ({events}) TO STDOUT (FORMAT csv, HEADER)"
        with ERRORS, replacing(path) as target, gzip.open(target, "wb") as file, raw.cursor().copy(copy) as parts:
            for part in parts:
                file.write(part)
    finally:
        pool.give_back(raw)


def remove(store: StoreId) -> None:
    schema = _find_schema(store)
    anchors.create_table(url_of(store))
    with connected(schema_of(store), url=url_of(store)) as connection, transaction.atomic(using=connection.alias):
        connection.run(f"DROP SCHEMA IF EXISTS {quote(schema_of(store))} CASCADE", ())
        if schema and schema.owner:
            connection.run(f"DROP OWNED BY {quote(schema.owner)}; DROP ROLE {quote(schema.owner)}", ())
        connection.run(anchors.REMOVE_ROW, [store.text])
    anchors.remove_file(store)
    forget_schema(store)
    if store.scope is not Scope.GLOBAL:
        shutil.rmtree(folder_of(store), ignore_errors=True)


def sizes(store: StoreId) -> dict[str, int]:
    ((tables, indexes, total),) = direct(store).rows(_SIZES, [quote(schema_of(store))])
    return {"tables": tables, "indexes": indexes, "long values": total - tables - indexes}


def watched(_store: StoreId) -> list[Path]:
    return []


def changed_at(_store: StoreId) -> float:
    return 0.0


location = location_of


def report_after_failure(connection: BaseDatabaseWrapper) -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    return "the server answers"


def engine() -> str:
    return f"PostgreSQL {rows.fetch('SHOW server_version')[0][0]}"


def has_hub() -> bool:
    return True


@contextmanager
def preparing_hub(alias: str) -> Iterator[None]:
    name, url = _SCHEMAS[alias], env.database_url()
    with locked(f"upgrade {name}", url):
        create_schema(name, f"memory-hub {name}", url=url, role="", empty=True)
        home_database.remember(url)
        yield


def back_up_hub(alias: str) -> Path | None:  # noqa: ARG001
    return None


# A store that moves: a schema without its name is a fence, because a process that has the store open finds no table in
# it from that commit on. The store that leaves, and the draft of the one that arrives, have other names.

_MOVED = "moved:"
_ARRIVING = "arriving:"
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

# "" if the schema belongs to the role that connects
_OWNER = (
    "SELECT coalesce(nullif(pg_get_userbyid(nspowner)::text, current_user::text), '') "
    "FROM pg_namespace WHERE nspname = %s"
)


def departure(store: StoreId) -> Departure | None:
    try:
        stored = direct(store).rows(_READ, [store.text])
    except ProgrammingError:  # no store ever left
        return None
    return Departure(**json.loads(stored[0][0])) if stored else None


def prepare_to_leave(store: StoreId) -> None:
    direct(store).rows(_CREATE)


def leave(store: StoreId, departure: Departure) -> None:
    moved = quote(_moved_schema(store))
    rows.execute("SET LOCAL ROLE NONE")
    rows.execute(_PUT, [store.text, json.dumps(asdict(departure))])
    rows.execute(f"ALTER SCHEMA {quote(schema_of(store))} RENAME TO {moved}")
    rows.execute(f"COMMENT ON SCHEMA {moved} IS %s", [_MOVED + store.text])


def _moved_schema(store: StoreId) -> str:
    return shortened(f"moved_{schema_of(store)}")


def mark_left(store: StoreId) -> None:
    forget_schema(store)


def kept_copy(store: StoreId) -> AbstractContextManager[None]:
    return opened(_moved_schema(store), store, store.alias)


@contextmanager
def opened(schema: str, store: StoreId, alias: str) -> Iterator[Any]:
    """Make another schema of a store's database current, with the role that it belongs to."""
    owners = direct(store).rows(_OWNER, [schema])
    if not owners:
        raise Invalid(f"the copy of {store.name!r} is gone; another move has replaced it")
    with connected(schema, alias, url=url_of(store), role=owners[0][0]) as connection, use_alias(alias):
        yield connection


def kept_stores() -> list[StoreId]:
    labels = sorted(text.removeprefix(_MOVED) for _, text in direct().labelled(_MOVED))
    return [StoreId.parse(label) for label in labels]


def come_back(store: StoreId, epoch: str) -> None:
    with _departed(store, epoch) as (connection, _):
        connection.run(f"ALTER SCHEMA {quote(_moved_schema(store))} RENAME TO {quote(schema_of(store))}", ())
        connection.run(f"COMMENT ON SCHEMA {quote(schema_of(store))} IS %s", [store.text])
    forget_schema(store)


def remove_kept(store: StoreId, epoch: str) -> None:
    anchors.create_table(url_of(store))
    with _departed(store, epoch) as (connection, departure):
        connection.run(f"DROP SCHEMA IF EXISTS {quote(_moved_schema(store))} CASCADE", ())
        connection.run(_PUT, [store.text, json.dumps(asdict(replace(departure, kept=False)))])
        connection.run(anchors.REMOVE_ROW, [store.text])
        drop_role(connection, store)
    anchors.remove_file(store)


# A transaction with the store's write lock, in which the mark of a move is removed
@contextmanager
def _departed(store: StoreId, epoch: str) -> Iterator[tuple[Any, Departure]]:
    prepare_to_leave(store)
    with connected(schema_of(store), url=url_of(store)) as connection, transaction.atomic(using=connection.alias):
        departures = connection.run(_REMOVE_OF, [store.text, epoch]).fetchall()
        if not departures:
            raise ConflictError(f"{store.scope} {store.name!r} was moved or came back meanwhile; run it again")
        yield connection, Departure(**json.loads(departures[0][0]))


def forget_departure(store: StoreId) -> None:
    direct(store).rows(_FORGET, [store.text])


def drafts(store: StoreId) -> list[str]:
    end = f":{store.text}"
    labels = [text for _, text in direct(store).labelled(_ARRIVING) if text.endswith(end)]
    return sorted(text.removeprefix(_ARRIVING).removesuffix(end) for text in labels)


def _draft(store: StoreId, epoch: str) -> str:
    return shortened(f"arriving_{re.sub('[^0-9a-z]', '', epoch)}_{schema_of(store)}")


def create_draft(store: StoreId, epoch: str) -> None:
    create_schema(_draft(store, epoch), f"{_ARRIVING}{epoch}:{store.text}", url=url_of(store), final=schema_of(store))


def draft(store: StoreId, epoch: str) -> AbstractContextManager[None]:
    return opened(_draft(store, epoch), store, store.alias)


def discard_draft(store: StoreId, epoch: str) -> None:
    direct(store).rows(f"DROP SCHEMA IF EXISTS {quote(_draft(store, epoch))} CASCADE")


def arrive(store: StoreId, epoch: str, anchor: Anchor) -> None:
    prepare_to_leave(store)
    if exists(store):
        raise ConflictError(
            f"there is a {store.scope} {store.name!r} in {home_database.display_url(url_of(store))} already"
        )
    schema = quote(schema_of(store))
    try:
        direct(store).rows(
            f"DROP SCHEMA IF EXISTS {quote(_moved_schema(store))} CASCADE; {_REMOVE}; "
            f"ALTER SCHEMA {quote(_draft(store, epoch))} RENAME TO {schema}; COMMENT ON SCHEMA {schema} IS %s",
            [store.text, store.text],
        )
    except ProgrammingError as error:
        raise ConflictError(f"the copy of {store.name!r} is gone; another move has used or replaced it") from error
    forget_schema(store)
    anchors.replace(store, anchor)


assign = locations.assign
server = locations.server_of
stay_on_this_server = locations.stay_on_this_server
