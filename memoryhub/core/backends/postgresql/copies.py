"""Schemas beside a store's: copies, their differences from it, and views of the past."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from django.db import DatabaseError, OperationalError, ProgrammingError, connections, transaction

from memoryhub.core import clock
from memoryhub.core.backends import differing
from memoryhub.core.backends.base import HERE, LIVE, Model, Source
from memoryhub.core.backends.differing import Differing
from memoryhub.core.backends.postgresql import faults, locations, machines, stores
from memoryhub.core.backends.postgresql.locations import connected, direct, quote, schema_of, url_of
from memoryhub.core.backends.postgresql.structure import statements_of
from memoryhub.core.errors import Locked, Unavailable
from memoryhub.core.stores import rows
from memoryhub.core.stores.routing import require_current_alias, use_alias
from memoryhub.core.stores.store_id import Scope, StoreId, key_of

logger = logging.getLogger(__name__)

ALIAS = "store:view:being-made"
# Comment of an unfinished schema, before the time at which it was made
DRAFT = "draft:"
# A view that is being made, and a copy that only this process uses: an erasure removes the former alone
DRAFT_NAME, SCRATCH = "draft", "scratch"


@contextmanager
def temporary_copy(store: StoreId) -> Iterator[None]:
    name = draft_name(store, SCRATCH)
    lease = machines.acquire(name)  # else a removal of text would remove the copy, as one whose process was killed
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
    schema = stores.identity(store)
    return schema.owner if schema else ""


@contextmanager
def opened(name: str, store: StoreId) -> Iterator[None]:
    with connected(name, ALIAS, url=url_of(store), role=role_of(store)), use_alias(ALIAS):
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


_WHY = "a store in PostgreSQL is repaired by the server's own backups"


passing_over_damage = nullcontext


def salvaged(store: StoreId) -> AbstractContextManager[Source | None]:
    return nullcontext(store)


@contextmanager
def fresh(place: Path) -> Iterator[None]:  # noqa: ARG001
    raise Unavailable(_WHY)
    yield


def carry(table: str, columns: Sequence[str] = ()) -> None:  # noqa: ARG001
    raise Unavailable(_WHY)


_ABANDONED_SECONDS = 6 * 3600
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
    draft = draft_name(store, DRAFT_NAME)
    source = schema_of(StoreId(Scope.VIEW, like)) if like else ""
    make_draft(draft, store, empty=bool(source))
    try:
        if source:
            _copy_schema(source, draft, store)
        with opened(draft, store):
            fill()
        # With the store's write lock, so that no erasure is committed in between, and over its connection alone
        with transaction.atomic(using=require_current_alias()):
            return may_publish() and _publish(draft, view, store)
    except ProgrammingError:  # an erasure removed the draft, or another process the view to start from
        if _is_there(draft, store) and (not source or _is_there(source, store)):
            raise
        return False
    finally:
        with suppress(DatabaseError):  # ``remove_abandoned_views`` does it later
            direct(store).rows(f"DROP SCHEMA IF EXISTS {quote(draft)} CASCADE")
        stores.forget_schema(view)


# Tables first, then their rows, then all that would slow the filling down
def _copy_schema(source: str, draft: str, store: StoreId) -> None:
    role = role_of(store)
    with connected(source, "store:view:source", url=url_of(store), role=role) as connection:
        definitions = statements_of(connection, source)
    names = direct(store).rows(_TABLES, [quote(source)])
    statements = [text for text in definitions if text.startswith("CREATE TABLE")]
    statements += [f"INSERT INTO {quote(name)} SELECT * FROM {quote(source)}.{quote(name)}" for (name,) in names]
    statements += [text for text in definitions if not text.startswith(("CREATE TABLE", "INSERT", "SELECT"))]
    with (
        connected(draft, url=url_of(store), role=role) as connection,
        transaction.atomic(using=connection.alias),
        connection.cursor() as cursor,
    ):
        cursor.execute(";\n".join(statements))


def _publish(draft: str, view: StoreId, store: StoreId) -> bool:
    if not rows.fetch(_FIND, [draft]):
        return False
    locations.note_view(view.name, url_of(store))
    name = schema_of(view)
    if not rows.fetch(_FIND, [name]):
        connection: Any = connections[require_current_alias()]
        connection.run_unrestricted(f"ALTER SCHEMA {quote(draft)} RENAME TO {quote(name)}", ())
        connection.run_unrestricted(f"COMMENT ON SCHEMA {quote(name)} IS %s", [_comment(view)])
    return True


def _is_there(schema: str, store: StoreId) -> bool:
    return bool(direct(store).rows(_FIND, [schema]))


def remove_views(names: Iterable[str]) -> None:
    for name in names:
        view = StoreId(Scope.VIEW, name)
        _remove_unused(schema_of(view), view)


def remove_abandoned_views(store: StoreId) -> None:
    for name, text in direct(store).labelled(DRAFT):
        if abs(clock.now().timestamp() - float(text.removeprefix(DRAFT))) > _ABANDONED_SECONDS:
            _remove_unused(name, store)


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
    for schema, _ in direct(store).labelled(DRAFT):
        if schema.startswith(f"{DRAFT_NAME}_{key_of(store)}_") and not _remove_unused(schema, store):
            # Its builder does not publish it, and removes it. If that is killed, ``remove_abandoned_views`` does
            with suppress(DatabaseError):  # it has just been removed
                direct(store).rows(f"COMMENT ON SCHEMA {quote(schema)} IS '{DRAFT}0'")
    remove_dead_copies(store)


def remove_dead_copies(store: StoreId) -> list[str]:
    """Remove what processes that were killed have left of copies of a store; return those that are still in use."""
    in_use = []
    for name, _ in direct(store).labelled(DRAFT):
        is_copy = name.startswith(f"{SCRATCH}_{key_of(store)}_")
        if is_copy and (machines.any_held(name) or not _remove_unused(name, store)):
            in_use.append(name)
    return in_use


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
