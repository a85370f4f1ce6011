"""Schemas beside a store's: copies, their differences from it, and views of the past."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any

from django.db import DatabaseError, OperationalError, ProgrammingError, connections, transaction

from memoryhub.core import clock
from memoryhub.core.backends import differing
from memoryhub.core.backends.base import HERE, LIVE, Model, Source
from memoryhub.core.backends.differing import Differing
from memoryhub.core.backends.postgresql import faults, locations, machines, stores
from memoryhub.core.backends.postgresql.locations import direct, quote, schema_of, url_of
from memoryhub.core.backends.postgresql.structure import statements_of
from memoryhub.core.errors import Invalid, Locked
from memoryhub.core.stores import rows
from memoryhub.core.stores.routing import require_current_alias
from memoryhub.core.stores.store_id import Scope, StoreId, key_of

logger = logging.getLogger(__name__)

_ALIAS = "store:view:being-made"
# Comment of a draft, before the time at which it was created
_DRAFT = "draft:"


@contextmanager
def _draft(store: StoreId, *, empty: bool = False) -> Iterator[str]:
    """Create a schema for a copy of ``store``, and remove it after the block unless it has another name by then."""
    name = f"draft_{key_of(store)}_{os.getpid()}_{time.monotonic_ns()}"
    comment = f"{_DRAFT}{clock.now().timestamp():.0f}"
    schema = stores.identity(store)
    role = schema.owner if schema else ""
    lease = machines.acquire(name)  # else a removal of text would remove it, as one whose process was killed
    try:
        stores.create_schema(name, comment, url=url_of(store), role=role, empty=empty)
        yield name
    finally:
        with suppress(DatabaseError):  # ``remove_dead_drafts`` does it later
            direct(store).rows(f"DROP SCHEMA IF EXISTS {quote(name)} CASCADE")
        if lease:
            lease.give_back()


@contextmanager
def temporary_copy(store: StoreId) -> Iterator[None]:
    with _draft(store) as name, stores.opened(name, store, _ALIAS):
        yield


@contextmanager
def attached(source: Source, *, write: bool = False) -> Iterator[None]:
    if not isinstance(source, StoreId):
        raise TypeError("only stores are attached in PostgreSQL")
    connection: Any = connections[require_current_alias()]
    connection.attached = schema_of(source)
    connection.locks_attached = write
    try:
        yield
    finally:
        connection.attached = ""
        connection.locks_attached = False


def allow_gaps() -> None:
    rows.execute("DROP TRIGGER raw_events_no_gap ON raw_events")
    for table, name in rows.fetch(
        "SELECT c.relname, o.conname FROM pg_constraint o JOIN pg_class c ON c.oid = o.conrelid "
        "WHERE o.contype = 'f' AND o.connamespace = quote_ident(current_schema())::regnamespace"
    ):
        rows.execute(f"ALTER TABLE {quote(table)} DROP CONSTRAINT {quote(name)}")


_HAS_TABLE = "SELECT 1 FROM pg_class WHERE relname = %s AND relnamespace = quote_ident(current_schema())::regnamespace"


def record_differing(model: Model) -> bool:
    table = Differing(model)
    if not rows.fetch(_HAS_TABLE, [f"differing_{table.name}"]):
        _watch(table)
    return table.find()


def apply_recorded(model: Model) -> None:
    table = Differing(model)
    keys = f"SELECT * FROM {table.records}"
    table.delete_outdated(keys)
    table.insert_missing(keys)


def _watch(table: Differing) -> None:
    """Create the table of differing keys, and triggers of the copy that fill it."""
    keys = ", ".join(table.key)
    rows.execute(f'CREATE TABLE {table.records} AS SELECT {keys} FROM {HERE}."{table.name}" WHERE false')
    notes = (
        f"IF TG_OP IN ('UPDATE', 'DELETE') THEN INSERT INTO {table.records} VALUES ({table.keys('OLD')}); END IF; "
        f"IF TG_OP IN ('INSERT', 'UPDATE') THEN INSERT INTO {table.records} VALUES ({table.keys('NEW')}); END IF; "
    )
    function = f'{HERE}."note_{table.name}"'
    rows.execute(
        f"CREATE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {notes} RETURN NULL; END $$"
    )
    rows.execute(
        f'CREATE TRIGGER note_{table.name} AFTER INSERT OR UPDATE OR DELETE ON {HERE}."{table.name}" '
        f"FOR EACH ROW EXECUTE FUNCTION {function}()"
    )


recorded = differing.recorded
table_digest = differing.table_digest


def replace_table(table: str) -> None:
    if not rows.fetch(_HAS_TABLE, [table]):
        return
    rows.execute(f'DELETE FROM {LIVE}."{table}"')
    rows.execute(f'INSERT INTO {LIVE}."{table}" SELECT * FROM {HERE}."{table}"')


passing_over_damage = nullcontext


def salvaged(store: StoreId) -> AbstractContextManager[Source | None]:
    return nullcontext(store)


# Who builds or reads a view has locks for as long as that takes. Below ``deadlock_timeout``: this gives way, not they
_IN_USE_SECONDS = 0.5
_PREFIX = "view:"
_FIND = "SELECT 1 FROM pg_namespace WHERE nspname = %s"
_TABLES = "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = to_regnamespace(%s)"


def view_names(store: StoreId, prefix: str = "") -> list[tuple[str, float]]:
    views = []
    for _, text in direct(store).labelled(_PREFIX):
        name, used = text.removeprefix(_PREFIX).split("@")
        if name.startswith(f"{prefix or key_of(store)}-"):
            locations.note_view(name, url_of(store))
            views.append((name, float(used)))
    return views


def touch_view(view: StoreId) -> bool:
    try:
        direct(view).rows(f"COMMENT ON SCHEMA {quote(schema_of(view))} IS %s", [_comment(view)])
    except ProgrammingError:
        stores.forget_schema(view)
        return False
    return True


def _comment(view: StoreId) -> str:
    return f"{_PREFIX}{view.name}@{clock.now().timestamp():.3f}"


def make_view(
    view: StoreId, store: StoreId, *, like: str | None, fill: Callable[[], object], may_publish: Callable[[], bool]
) -> bool:
    source = schema_of(StoreId(Scope.VIEW, like)) if like else ""
    with _draft(store, empty=bool(source)) as draft:
        try:
            if source:
                _copy_schema(source, draft, store)
            with stores.opened(draft, store, _ALIAS):
                fill()
            # With the store's write lock, so that no erasure is committed in between, and over its connection alone
            with transaction.atomic(using=require_current_alias()):
                is_current = may_publish()
                if is_current:
                    _publish(draft, view, store)
            return is_current
        except (Invalid, ProgrammingError):  # another process removed the view to start from, or a draft without lease
            if all(direct(store).rows(_FIND, [schema]) for schema in (draft, source or draft)):
                raise
            return False
        finally:
            stores.forget_schema(view)


# Tables first, then their rows, then all that would slow the filling down
def _copy_schema(source: str, draft: str, store: StoreId) -> None:
    with stores.opened(source, store, "store:view:source") as connection:
        definitions = statements_of(connection, source)
    names = direct(store).rows(_TABLES, [quote(source)])
    statements = [text for text in definitions if text.startswith("CREATE TABLE")]
    statements += [f"INSERT INTO {quote(name)} SELECT * FROM {quote(source)}.{quote(name)}" for (name,) in names]
    statements += [text for text in definitions if not text.startswith(("CREATE TABLE", "INSERT", "SELECT"))]
    with (
        stores.opened(draft, store, _ALIAS) as connection,
        transaction.atomic(using=connection.alias),
        connection.cursor() as cursor,
    ):
        cursor.execute(";\n".join(statements))


def _publish(draft: str, view: StoreId, store: StoreId) -> None:
    locations.note_view(view.name, url_of(store))
    name = schema_of(view)
    if not rows.fetch(_FIND, [name]):
        connection: Any = connections[require_current_alias()]
        connection.run_unrestricted(f"ALTER SCHEMA {quote(draft)} RENAME TO {quote(name)}", ())
        connection.run_unrestricted(f"COMMENT ON SCHEMA {quote(name)} IS %s", [_comment(view)])


def remove_views(names: Iterable[str]) -> None:
    for name in names:
        view = StoreId(Scope.VIEW, name)
        _remove_unused(schema_of(view), view)


# It would wait for readers and builders of views, with the store's write lock, over a connection that a pooler may not
# have. No view is published during a transaction that has the lock; if this process dies at its commit, a later read of
# the past or the job that wipes calls ``forget_views``.
def forget_views_early(store: StoreId) -> None:
    pass


def forget_views(store: StoreId) -> None:
    for schema, text in direct(store).labelled(_PREFIX):
        if text.removeprefix(_PREFIX).startswith(f"{key_of(store)}-"):
            try:
                direct(store).rows(f"DROP SCHEMA IF EXISTS {quote(schema)} CASCADE")
            except OperationalError as error:
                if not faults.is_locked(error):
                    raise
                raise Locked(
                    f"a view of {store.name!r} at a past position is being read, so it could not be removed"
                ) from error
    remove_dead_drafts(store)


def remove_dead_drafts(store: StoreId) -> list[str]:
    # "scratch", as an earlier version named those that it did not publish
    names = [name for name, _ in direct(store).labelled(_DRAFT) if f"_{key_of(store)}_" in name]
    return [name for name in names if machines.any_held(name) or not _remove_unused(name, store)]


def _remove_unused(schema: str, store: StoreId) -> bool:
    limit = f"SET LOCAL lock_timeout TO '{_IN_USE_SECONDS}s'"
    try:
        direct(store).rows(f"{limit}; DROP SCHEMA IF EXISTS {quote(schema)} CASCADE")
    except OperationalError as error:
        if not faults.is_locked(error):
            raise
        logger.info("a view of the past is in use, and is removed later: %s", schema)
        return False
    return True


def forbid_writes() -> None:
    connection: Any = connections[require_current_alias()]
    connection.read_only = True
