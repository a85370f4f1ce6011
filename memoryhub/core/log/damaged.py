"""Read the log of a damaged store, and build a new store from it (decision 32)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from django.db import DatabaseError, models, transaction

from memoryhub.core.backends.base import HERE, LIVE, Source
from memoryhub.core.backends.selected import differences, faults, repair, scratch
from memoryhub.core.errors import Unavailable
from memoryhub.core.events.projection import models_beside_log, read_models, text_caches
from memoryhub.core.log.chain import Verification, check_links, verify
from memoryhub.core.log.copy import apply_events, take_events
from memoryhub.core.log.digests import GENESIS
from memoryhub.core.log.read import erased_after, head
from memoryhub.core.log.rebuild import TableReport
from memoryhub.core.log.replacing import ErasedMeanwhile, is_of_one_log
from memoryhub.core.stores import rows
from memoryhub.core.stores.routing import require_current_alias
from memoryhub.core.stores.schema import META_COLUMNS
from memoryhub.core.stores.store import StoreId

# Stands for the digest of a table that could not be read.
UNREADABLE = "unreadable"
# The two are compared again if other writers moved the log between the reads.
_ATTEMPTS = 3


def verify_damaged(store: StoreId) -> Verification:
    """Verify the log of a store as ``verify`` does, even if the rest of its file is damaged."""
    with readable_log(store) as source:
        if source is None:
            return Verification(False, 0, GENESIS, 1, "the log cannot be found in the file")
        with scratch.temporary_copy(store), repair.passing_over_damage(), scratch.attached(source):
            return verify(of=store, database=LIVE)


@contextmanager
def readable_log(store: StoreId) -> Iterator[Source | None]:
    """Yield from where the store's log can be read: the store, a temporary copy, or None."""
    if _has_log(store):
        yield store
        return
    with repair.salvaged(store) as source:
        yield source


def _has_log(store: StoreId) -> bool:
    try:
        with scratch.temporary_copy(store), repair.passing_over_damage(), scratch.attached(store):
            return bool(rows.fetch(f"SELECT count(*) FROM (SELECT 1 FROM {LIVE}.raw_events LIMIT 1) AS t"))
    except DatabaseError as error:
        if not faults.is_damage(error):
            raise
        return False


class FreshFile:
    def __init__(self, store: StoreId, source: Source) -> None:
        self._store, self._source = store, source

    @classmethod
    @contextmanager
    def at(cls, path: Path, store: StoreId, source: Source) -> Iterator[FreshFile]:
        """Create an empty store at ``path``, for the log in ``source``, and make it current inside the block."""
        with repair.fresh(path), repair.passing_over_damage():
            yield cls(store, source)

    def fill(self, progress: Callable[[int], None]) -> None:
        with scratch.attached(self._source):
            found = verify(of=self._store, database=LIVE)
            if not found.ok:
                raise Unavailable(f"the file cannot be built from its log: {found.describe()}")
            take_events(head(LIVE)[0])
        apply_events(0, progress)
        with scratch.attached(self._source):
            for table in text_caches():
                repair.carry(table)

    def catch_up(self) -> None:
        """Copy and apply the events that were appended since.

        Raises:
            ErasedMeanwhile: events were erased or redacted since, or a backup was restored.
            Unavailable: the new events do not continue the chain.
        """
        with scratch.attached(self._source), transaction.atomic(using=require_current_alias()):
            self._take_late()

    def finish(self) -> None:
        """Copy the last events and all data that is not in the log; requires the store's write lock."""
        self.catch_up()
        with scratch.attached(self._source):
            for model in models_beside_log():
                if model._meta.db_table not in text_caches():
                    repair.carry(model._meta.db_table)
            repair.carry("store_meta", META_COLUMNS)

    def compared(self) -> list[TableReport]:
        alias = require_current_alias()
        for _ in range(_ATTEMPTS):
            self.catch_up()
            with scratch.attached(self._source), transaction.atomic(using=alias):
                tables = [_compared(model) for model in read_models()]
                is_level = head(LIVE) == head()
                transaction.set_rollback(True, using=alias)  # a COMMIT fails after a read that met a damaged page
            if is_level:
                break
        return tables

    def _take_late(self) -> None:
        last = head()[0]
        if erased_after(last, LIVE) or not is_of_one_log():
            raise ErasedMeanwhile
        apply_events(take_events(head(LIVE)[0]))
        for position, flaw in check_links(first=last + 1, last=head()[0]).items():
            if flaw:
                raise Unavailable(f"the file cannot be built from its log: #{position}: {flaw}")


def _compared(model: type[models.Model]) -> TableReport:
    count, after = differences.table_digest(model, HERE)
    try:
        _, before = differences.table_digest(model, LIVE)
    except DatabaseError as error:
        if not faults.is_damage(error):
            raise
        before = UNREADABLE
    return TableReport(model._meta.db_table, count, before, after, replaced=True)
