"""Rebuild the read models from the log in a copy, compare every table, and replace the store's rows."""

# A projector may read any table as it was at its event, so no table can be rebuilt alone: the whole log is applied in
# a copy. Other writers wait only while rows are replaced (decision 29).

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from django.db import connections, models

from memoryhub.core.backends.base import HERE, LIVE
from memoryhub.core.backends.selected import differences, scratch
from memoryhub.core.errors import Invalid, Locked
from memoryhub.core.events.projection import finish_rebuild, read_models
from memoryhub.core.log.copy import follow
from memoryhub.core.log.read import head, last_erasure
from memoryhub.core.log.replacing import ErasedMeanwhile, Replacing
from memoryhub.core.stores import schema
from memoryhub.core.stores.routing import require_current_alias
from memoryhub.core.stores.store import StoreId, current_store

_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class TableReport:
    table: str
    rows: int
    before: str
    after: str
    # Whether the store got the rebuilt rows; otherwise they were only compared.
    replaced: bool

    @property
    def identical(self) -> bool:
        return self.before == self.after


@dataclass(frozen=True, slots=True)
class RebuildReport:
    events: int
    seconds: float
    tables: list[TableReport]

    @property
    def identical(self) -> bool:
        return all(table.identical for table in self.tables)


def rebuild(progress: Callable[[int], None] = lambda _: None, *, only: Sequence[str] = ()) -> RebuildReport:
    """Rebuild read models from the log; they replace the present ones in one transaction.

    Args:
        progress: called with the number of events applied so far, about every 2,000.
        only: tables or app labels to replace; all others are only compared. Default: all.
    """
    tables = _tables_of(only)
    started = time.monotonic()
    schema.ensure(connections[require_current_alias()])
    for _ in range(_ATTEMPTS):
        report = _attempt(current_store(), tables, progress)
        if report is not None:
            finish_rebuild()
            return RebuildReport(head()[0], time.monotonic() - started, report)
    raise Locked("events were erased during the rebuild; run rebuild again")


def _tables_of(only: Sequence[str]) -> frozenset[str]:
    tables = {model._meta.db_table: model._meta.app_label for model in read_models()}
    known = sorted({*tables, *tables.values()})
    unknown = [name for name in only if name not in known]
    if unknown:
        raise Invalid(f"{unknown[0][:80]!r} is not a read model; name a table or an app", choices=known)
    return frozenset(table for table, app in tables.items() if not only or table in only or app in only)


def _attempt(store: StoreId, tables: frozenset[str], progress: Callable[[int], None]) -> list[TableReport] | None:
    replaced = [model for model in read_models() if model._meta.db_table in tables]
    replacing = Replacing(store, last_erasure(), replaced)
    last, _ = head()
    with scratch.temporary_copy(store), suppress(ErasedMeanwhile):
        follow(store, up_to=last, progress=progress)
        replacing.catch_up()
        with replacing.compared() as differing:
            report = [_reported(model, model in differing, model in replaced) for model in read_models()]
        with replacing.locked():
            pass
        replacing.settle()
        return report
    # Text was erased since the copy was started; the copy must not restore it.
    return None


def _reported(model: type[models.Model], differs: bool, replaced: bool) -> TableReport:  # noqa: FBT001
    count, before = differences.table_digest(model, LIVE)
    count, after = differences.table_digest(model, HERE) if differs else (count, before)
    return TableReport(model._meta.db_table, count, before, after, replaced)


def table_digests() -> dict[str, tuple[int, str]]:
    return {model._meta.db_table: differences.table_digest(model, HERE) for model in read_models()}
