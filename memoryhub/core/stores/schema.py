"""The schema of a store: migrated tables, and triggers and virtual tables that migrations cannot keep."""

# Django rebuilds a SQLite table to alter it and silently drops its triggers; so these statements are idempotent and
# run again after every migration.

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from django.apps import apps
from django.db import transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from memoryhub.core.errors import Unavailable
from memoryhub.core.stores.routing import STORE_APPS, use_alias

META_COLUMNS = ("key", "value")

_required: dict[str, list[str]] = {}
_optional: dict[str, tuple[str, list[str]]] = {}
_steps: list[Callable[[], None]] = []


def require_sql(name: str, *statements: str) -> None:
    """Register idempotent SQL that runs in every store; ``name`` identifies it."""
    _required[name] = list(statements)


def require_optional_sql(name: str, *statements: str, needs: str) -> None:
    """Register idempotent SQL that is skipped if the database lacks the module that it ``needs``."""
    _optional[name] = (needs, list(statements))


def after_ensuring(step: Callable[[], None]) -> Callable[[], None]:
    """Register a function that runs after the statements, and as often."""
    _steps.append(step)
    return step


def ensure(connection: BaseDatabaseWrapper) -> None:
    """Run all registered statements, and store the schema's fingerprint."""
    backend: Any = connection
    possible = [statements for needs, statements in _optional.values() if backend.has_module(needs)]
    with connection.cursor() as cursor:
        for statements in [*_required.values(), *possible]:
            for statement in statements:
                cursor.execute(statement)
        with use_alias(connection.alias):
            for step in _steps:
                step()
        cursor.execute(_PUT_FINGERPRINT, [fingerprint()])


_PUT_FINGERPRINT = (
    "INSERT INTO store_meta (key, value) VALUES ('fingerprint', %s) "
    "ON CONFLICT (key) DO UPDATE SET value = excluded.value"
)


@cache
def fingerprint() -> str:
    """Return a digest of all store apps' migrations and required SQL in this version."""
    digest = hashlib.sha256(repr([sorted(_required.items()), sorted(_optional.items())]).encode())
    for app in STORE_APPS:
        folder = Path(apps.get_app_config(app).path) / "migrations"
        for path in sorted(folder.glob("0*.py")):
            digest.update(f"{app}.{path.stem}".encode() + path.read_bytes())
    return digest.hexdigest()


def stored_fingerprint(connection: BaseDatabaseWrapper) -> str | None:
    if not connection.has_table("store_meta"):  # type: ignore[attr-defined]
        return None
    with connection.cursor() as cursor:
        cursor.execute("SELECT value FROM store_meta WHERE key = 'fingerprint'")
        row = cursor.fetchone()
        return row[0] if row else None


def migrate(connection: BaseDatabaseWrapper, *, before: Callable[[], object] = lambda: None) -> None:
    """Migrate the store to this version; ``before`` is called first, unless the store cannot be migrated.

    Raises:
        Unavailable: a newer version has migrated this store already, or the last that did is too old.
    """
    from django.db.migrations.executor import MigrationExecutor

    def check_constraints(action: str, *_: Any) -> None:
        if action == "apply_success":  # PostgreSQL alters no table with constraints that are still to be checked
            connection.check_constraints()

    refuse_other_versions(connection, STORE_APPS)
    executor = MigrationExecutor(connection, check_constraints)
    before()
    with migrating(connection):
        executor.migrate([node for node in executor.loader.graph.leaf_nodes() if node[0] in STORE_APPS])
        ensure(connection)


@contextmanager
def migrating(connection: BaseDatabaseWrapper) -> Iterator[None]:
    """Apply all migrations of the block or none, whenever this process dies."""
    # Django records a migration that creates indexes at its end after the transaction of its tables: a process that is
    # killed in between leaves tables that the next attempt would create again. The schema editor of SQLite wants the
    # foreign keys switched off, which only works outside a transaction.
    with connection.constraint_checks_disabled(), transaction.atomic(using=connection.alias):
        yield


def refuse_other_versions(connection: BaseDatabaseWrapper, app_labels: Collection[str]) -> None:
    """Refuse a database whose migrations of these apps this version does not have, or that stopped among replaced ones.

    Raises:
        Unavailable: with the versions that can open it.
    """
    from django.db.migrations.loader import MigrationLoader
    from django.db.migrations.recorder import MigrationRecorder

    loader = MigrationLoader(None)
    applied = {node for node in MigrationRecorder(connection).applied_migrations() if node[0] in app_labels}
    # Django takes a squashed migration as applied if all that it replaces are, and loses the model if only some are.
    for squashed in loader.replacements.values():
        unapplied = set(squashed.replaces) - applied
        if unapplied and applied.intersection(squashed.replaces):
            app, name = min(unapplied)
            raise Unavailable(
                f"memory database unavailable: it was last opened by a Memory Hub that is too old (it lacks "
                f"{app}.{name}); open it once with a version from between, then with this one"
            )
    replaced = {node for squashed in loader.replacements.values() for node in squashed.replaces}
    newer = sorted(f"{app}.{name}" for app, name in applied - replaced - set(loader.graph.nodes))
    if newer:
        raise Unavailable(
            f"memory database unavailable: it was written by a newer Memory Hub ({newer[-1]}); upgrade this one",
            migrations=newer,
        )
