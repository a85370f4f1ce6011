"""Rebuild: make the read models anew beside the store, compare every table, and put the new rows in place.

A projector may read any table as it was at its event, so no table can be made alone: the whole log is applied in a
copy, and of that as many tables as were asked for replace the store's. Writers go on but for the moment of replacing.
"""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from django.db import connections, models

from memoryhub.core.errors import Invalid, Locked
from memoryhub.core.events.projection import finish_rebuild, read_models
from memoryhub.core.log import views
from memoryhub.core.log.copy import LIVE, follow, open_copy
from memoryhub.core.log.read import head, last_erasure
from memoryhub.core.log.replacing import ErasedMeanwhile, Replacing
from memoryhub.core.stores import files, rows, schema
from memoryhub.core.stores.routing import require_current_alias
from memoryhub.core.stores.store import StoreId, current_store

_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class TableReport:
    """One read model's table before and after."""

    table: str
    rows: int
    before: str
    after: str
    replaced: bool
    """Whether the store has the new rows; else they were only compared."""

    @property
    def identical(self) -> bool:
        """Whether the rebuilt rows are those from before, byte for byte."""
        return self.before == self.after


@dataclass(frozen=True, slots=True)
class RebuildReport:
    """What a rebuild did."""

    events: int
    seconds: float
    tables: list[TableReport]

    @property
    def identical(self) -> bool:
        """Whether every table came out as it was."""
        return all(table.identical for table in self.tables)


def rebuild(progress: Callable[[int], None] = lambda _: None, *, only: Sequence[str] = ()) -> RebuildReport:
    """Make read models anew from the log; they replace the present ones in one transaction.

    Args:
        progress: called with the number of events applied so far, about every 2,000.
        only: tables, or apps with all their tables; the others are only compared. Default: all.

    Raises:
        Invalid: one of ``only`` is no read model.
        Locked: events were erased time and again while it ran.
    """
    wanted = _chosen(only)
    started = time.monotonic()
    schema.ensure(connections[require_current_alias()])
    for _ in range(_ATTEMPTS):
        report = _attempt(current_store(), wanted, progress)
        if report is not None:
            finish_rebuild()
            return RebuildReport(head()[0], time.monotonic() - started, report)
    raise Locked("events were erased while the read models were made anew; run rebuild again")


def _chosen(only: Sequence[str]) -> frozenset[str]:
    tables = {model._meta.db_table: model._meta.app_label for model in read_models()}
    known = sorted({*tables, *tables.values()})
    unknown = [name for name in only if name not in known]
    if unknown:
        raise Invalid(f"{unknown[0][:80]!r} is no read model; name a table or an app", choices=known)
    return frozenset(table for table, app in tables.items() if not only or table in only or app in only)


def _attempt(store: StoreId, wanted: frozenset[str], progress: Callable[[int], None]) -> list[TableReport] | None:
    """Return the tables, or None where something was erased meanwhile, which the copy must not bring back."""
    put = [model for model in read_models() if model._meta.db_table in wanted]
    replacing = Replacing(store.path, last_erasure(), put)
    last, _ = head()
    with temporary_copy(store), suppress(ErasedMeanwhile):
        follow(store.path, up_to=last, progress=progress)
        replacing.catch_up()
        with replacing.compared() as differing:
            report = [_reported(model, model in differing, model in put) for model in read_models()]
        with replacing.locked():
            pass
        replacing.settle()
        return report
    return None


@contextmanager
def temporary_copy(store: StoreId) -> Iterator[None]:
    """Make an empty copy of the store current, in a file that has no name: it goes with this process."""
    folder = views.draft_folder(store)
    try:
        files.copy_template(folder / "events.db")
        with open_copy(folder / "events.db"):
            shutil.rmtree(folder)
            yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _reported(model: type[models.Model], differs: bool, replaced: bool) -> TableReport:  # noqa: FBT001
    count, before = table_digest(model, LIVE)
    count, after = table_digest(model, "main") if differs else (count, before)
    return TableReport(model._meta.db_table, count, before, after, replaced)


def table_digests() -> dict[str, tuple[int, str]]:
    """Return the number of rows and a digest over all of them, for every read model's table."""
    return {model._meta.db_table: table_digest(model, "main") for model in read_models()}


def table_digest(model: type[models.Model], database: str) -> tuple[int, str]:
    """Return a table's number of rows, and a digest over them.

    Rows are read as SQLite's own bytes, each value behind its length; Python's values take several times as long.
    """
    columns = [f'"{field.column}"' for field in model._meta.local_concrete_fields]
    values = [f"coalesce(length(CAST({column} AS BLOB)) || ':' || {column}, '-')" for column in columns]
    key = ", ".join(f'"{field.column}"' for field in model._meta.pk_fields)
    row = f"CAST({' || '.join(values)} AS BLOB)"
    digest, count = hashlib.sha256(), 0
    for (value,) in rows.iterate(f'SELECT {row} FROM {database}."{model._meta.db_table}" ORDER BY {key}'):
        digest.update(value)
        count += 1
    return count, digest.hexdigest()
