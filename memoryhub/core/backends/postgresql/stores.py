"""The life of stores as schemas."""

from __future__ import annotations

import gzip
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from django.db import DatabaseError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from memoryhub import env
from memoryhub.core import clock, home_database
from memoryhub.core.backends.postgresql import anchors, faults, objects, servers  # noqa: F401 - registers the log's triggers
from memoryhub.core.backends.postgresql.connecting import connected
from memoryhub.core.backends.postgresql.options import connection_settings
from memoryhub.core.backends.postgresql.pool import ERRORS, pool_of
from memoryhub.core.backends.postgresql.schemas import (
    HUB,
    JOBS,
    Direct,
    direct,
    label_of,
    locked,
    quote,
    schema_of,
    shortened,
)
from memoryhub.core.backends.postgresql.servers import location_of, url_of
from memoryhub.core.backends.postgresql.templates import template_text
from memoryhub.core.disk import make_folder, replacing
from memoryhub.core.errors import Damaged, Invalid, Unavailable
from memoryhub.core.stores import rows
from memoryhub.core.stores.store_id import FOLDERS, SLUG, Scope, StoreId, folder_of

THING = "schema"
HUB_NAME = "the hub's database"
QUEUE_NAME = "the job queue"
_SCHEMAS = {"default": HUB, "jobs": JOBS}
# How long this process believes that a schema is there
_KNOWN_SECONDS = 1.0

_FIND = (
    "SELECT n.oid, CASE WHEN n.nspowner = r.oid THEN '' ELSE pg_get_userbyid(n.nspowner)::text END, "
    "NOT EXISTS (SELECT 1 FROM pg_class c WHERE c.relnamespace = n.oid), "
    "coalesce(obj_description(n.oid, 'pg_namespace'), '') "
    "FROM pg_namespace n JOIN pg_roles r ON r.rolname = current_user WHERE n.nspname = %s"
)
_NAMES = (
    "SELECT substr(d.description, %s) FROM pg_namespace n JOIN pg_description d ON d.objoid = n.oid "
    "AND d.classoid = 'pg_namespace'::regclass WHERE starts_with(d.description, %s)"
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


_known: dict[tuple[str, str], tuple[float, StoreSchema]] = {}


def exists(store: StoreId) -> bool:
    return _find(store) is not None


def names(scope: Scope) -> list[str]:
    prefix = f"{scope}:"
    found = {name for (name,) in direct().rows(_NAMES, [len(prefix) + 1, prefix])}
    found |= {label.removeprefix(prefix) for label in servers.assigned() if label.startswith(prefix)}
    return sorted(name for name in found if SLUG.fullmatch(name))


def identity(store: StoreId) -> StoreSchema | None:
    found = _find(store)
    if found and found.is_empty:
        raise Damaged(
            f"memory database unavailable: the schema of {store.name!r} is empty; "
            "run `memory-hub doctor` for ways to restore it",
            store=store.name,
        )
    return found and replace(found)


def _find(store: StoreId) -> StoreSchema | None:
    key = url_of(store), schema_of(store)
    seen, known = _known.get(key, (0.0, None))
    if known and time.monotonic() - seen < _KNOWN_SECONDS:
        return known
    _known.pop(key, None)
    found = Direct(key[0]).rows(_FIND, [key[1]])
    if not found:
        return None
    schema = StoreSchema(*found[0])
    if schema.label.partition("@")[0] != label_of(store):
        raise Invalid(f"{store.scope} id {store.name!r} can't be used: another store's schema has the same short name")
    _known[key] = time.monotonic(), schema
    return schema


def forget_schema(store: StoreId) -> None:
    """Look for a schema again, instead of believing for a second what this process knows."""
    _known.pop((url_of(store), schema_of(store)), None)


def settings(store: StoreId) -> dict[str, Any]:
    schema = _find(store)
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
    create_schema(schema_of(store), label_of(store), url=url_of(store))
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
    found = _find(store)
    if found and not found.is_empty:
        return ""
    if found:
        direct(store).rows(f"DROP SCHEMA {quote(schema_of(store))}")
    create(store)
    return f"the store's schema was {'empty' if found else 'gone'}"


@contextmanager
def upgrading(store: StoreId) -> Iterator[None]:
    with locked(f"upgrade {schema_of(store)}", url_of(store)):
        yield


def back_up(store: StoreId, *, reason: str) -> None:
    folder = env.prepare_home() / "backups" / FOLDERS[store.scope] / store.name
    make_folder(folder)
    path = folder / f"{clock.now().strftime('%Y%m%dT%H%M%S%f')[:-3]}-{reason}.csv.gz"
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
    schema = _find(store)
    anchors.create_table(url_of(store))
    with connected(schema_of(store), url=url_of(store)) as connection, transaction.atomic(using=connection.alias):
        connection.run(f"DROP SCHEMA IF EXISTS {quote(schema_of(store))} CASCADE", ())
        if schema and schema.owner:
            connection.run(f"DROP OWNED BY {quote(schema.owner)}; DROP ROLE {quote(schema.owner)}", ())
        connection.run(anchors.REMOVE_ROW, [label_of(store)])
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


def location(store: StoreId) -> str:
    return location_of(store)


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
