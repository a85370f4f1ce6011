"""Views as schemas; an unfinished one has another name and comment."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from django.db import DatabaseError, OperationalError, ProgrammingError, connections, transaction

from memoryhub.core import clock
from memoryhub.core.backends.postgresql import faults, leases, servers, stores
from memoryhub.core.backends.postgresql.connecting import connected
from memoryhub.core.backends.postgresql.schemas import direct, quote, schema_of
from memoryhub.core.backends.postgresql.scratch import (
    DRAFT,
    DRAFT_NAME,
    SCRATCH,
    draft_name,
    make_draft,
    opened,
    role_of,
)
from memoryhub.core.backends.postgresql.servers import url_of
from memoryhub.core.backends.postgresql.templates import statements_of
from memoryhub.core.errors import Locked
from memoryhub.core.stores import rows
from memoryhub.core.stores.routing import require_current_alias
from memoryhub.core.stores.store_id import Scope, StoreId, key_of

logger = logging.getLogger(__name__)

_ABANDONED_SECONDS = 6 * 3600
# Who builds or reads a view has locks for as long as that takes. Below ``deadlock_timeout``: this gives way, not they
_IN_USE_SECONDS = 0.5
_PREFIX = "view:"
_FIND = "SELECT 1 FROM pg_namespace WHERE nspname = %s"
_TABLES = "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = to_regnamespace(%s)"
_USED = (
    "SELECT n.nspname, d.description FROM pg_namespace n JOIN pg_description d ON d.objoid = n.oid "
    "AND d.classoid = 'pg_namespace'::regclass WHERE starts_with(d.description, %s)"
)


def names(store: StoreId, prefix: str = "") -> list[tuple[str, float]]:
    found = []
    for _, text in direct(store).rows(_USED, [_PREFIX]):
        name, used = text.removeprefix(_PREFIX).split("@")
        if name.startswith(f"{prefix or key_of(store)}-"):
            servers.note_view(name, url_of(store))
            found.append((name, float(used)))
    return found


def touch(view: StoreId) -> bool:
    try:
        direct(view).rows(f"COMMENT ON SCHEMA {quote(schema_of(view))} IS %s", [_comment(view)])
    except ProgrammingError:
        stores.forget_schema(view)
        return False
    return True


def _comment(view: StoreId) -> str:
    return f"{_PREFIX}{view.name}@{clock.now().timestamp():.3f}"


def make(
    view: StoreId, store: StoreId, *, like: str | None, fill: Callable[[], object], may_publish: Callable[[], bool]
) -> bool:
    draft = draft_name(store, DRAFT_NAME)
    make_draft(draft, store, empty=like is not None)
    try:
        if like is not None:
            _copy(StoreId(Scope.VIEW, like), draft, store)
        with opened(draft, store):
            fill()
        # With the store's write lock, so that no erasure is committed in between, and over its connection alone
        with transaction.atomic(using=require_current_alias()):
            return may_publish() and _publish(draft, view, store)
    except ProgrammingError:  # an erasure removed the draft, or another process the view to start from
        if _is_there(draft, store) and (like is None or _is_there(schema_of(StoreId(Scope.VIEW, like)), store)):
            raise
        return False
    finally:
        with suppress(DatabaseError):  # ``remove_abandoned`` does it later
            direct(store).rows(f"DROP SCHEMA IF EXISTS {quote(draft)} CASCADE")
        stores.forget_schema(view)


def _copy(source: StoreId, draft: str, store: StoreId) -> None:
    schema = schema_of(source)
    statements = [text for text in _statements_of(schema, store) if not text.startswith(("INSERT", "SELECT"))]
    tables = [text for text in statements if text.startswith("CREATE TABLE")]
    names = direct(store).rows(_TABLES, [quote(schema)])
    filling = [f"INSERT INTO {quote(name)} SELECT * FROM {quote(schema)}.{quote(name)}" for (name,) in names]
    rest = [text for text in statements if not text.startswith("CREATE TABLE")]
    with (
        connected(draft, url=url_of(store), role=role_of(store)) as connection,
        transaction.atomic(using=connection.alias),
        connection.cursor() as cursor,
    ):
        cursor.execute(";\n".join([*tables, *filling, *rest]))


def _statements_of(schema: str, store: StoreId) -> list[str]:
    with connected(schema, "store:view:source", url=url_of(store), role=role_of(store)) as connection:
        return statements_of(connection, schema)


def _publish(draft: str, view: StoreId, store: StoreId) -> bool:
    if not rows.fetch(_FIND, [draft]):
        return False
    servers.note_view(view.name, url_of(store))
    name = schema_of(view)
    if not rows.fetch(_FIND, [name]):
        connection: Any = connections[require_current_alias()]
        connection.run_unrestricted(f"ALTER SCHEMA {quote(draft)} RENAME TO {quote(name)}", ())
        connection.run_unrestricted(f"COMMENT ON SCHEMA {quote(name)} IS %s", [_comment(view)])
    return True


def _is_there(schema: str, store: StoreId) -> bool:
    return bool(direct(store).rows(_FIND, [schema]))


def remove(found: Iterable[str]) -> None:
    for view in (StoreId(Scope.VIEW, name) for name in found):
        _remove_unused(schema_of(view), view)


def remove_abandoned(store: StoreId) -> None:
    for name, text in direct(store).rows(_USED, [DRAFT]):
        if abs(clock.now().timestamp() - float(text.removeprefix(DRAFT))) > _ABANDONED_SECONDS:
            _remove_unused(name, store)


# It would wait for readers and builders of views, with the store's write lock, over a connection that a pooler may not
# have. No view is published during a transaction that has the lock; if this process dies at its commit, a later read of
# the past or the job that wipes calls ``forget``.
def forget_early(store: StoreId) -> None:
    pass


def forget(store: StoreId) -> None:
    for schema, text in direct(store).rows(_USED, [_PREFIX]):
        if text.removeprefix(_PREFIX).startswith(f"{key_of(store)}-"):
            _remove_view(schema, store)
    for schema, _ in direct(store).rows(_USED, [DRAFT]):
        if schema.startswith(f"{DRAFT_NAME}_{key_of(store)}_") and not _remove_unused(schema, store):
            # Its builder does not publish it, and removes it. If that is killed, ``remove_abandoned`` does
            with suppress(DatabaseError):  # it has just been removed
                direct(store).rows(f"COMMENT ON SCHEMA {quote(schema)} IS '{DRAFT}0'")
    remove_dead_copies(store)


def remove_dead_copies(store: StoreId) -> list[str]:
    """Remove what processes that were killed have left of copies of a store; return those that are still in use."""
    copies = [name for name, _ in direct(store).rows(_USED, [DRAFT]) if name.startswith(f"{SCRATCH}_{key_of(store)}_")]
    return [name for name in copies if leases.any_held(name) or not _remove_unused(name, store)]


def _remove_view(schema: str, store: StoreId) -> None:
    try:
        direct(store).rows(f"DROP SCHEMA IF EXISTS {quote(schema)} CASCADE")
    except OperationalError as error:
        if not faults.is_locked(error):
            raise
        raise Locked(
            f"a view of {store.name!r} at a past position is being read, so it could not be removed"
        ) from error


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
