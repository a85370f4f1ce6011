"""Rebuild: empty the read models, apply the log again, and show that they came out the same."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass

from memoryhub.core import rows
from memoryhub.core.log.append import transaction
from memoryhub.core.log.read import ReplayWindow, read
from memoryhub.core.projection import apply, empty_read_models, read_models

_BATCH = 2000


@dataclass(frozen=True, slots=True)
class TableReport:
    """One read model's table before and after."""

    table: str
    rows: int
    before: str
    after: str

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


def rebuild(progress: Callable[[int], None] = lambda _: None) -> RebuildReport:
    """Make every read model anew from the log, in one transaction: a failure leaves the old ones.

    Args:
        progress: called with the number of events applied so far, about every 2,000.
    """
    started = time.monotonic()
    with transaction():
        before = table_digests()
        empty_read_models()
        count = 0
        for event in read(ReplayWindow()):
            apply(event)
            count += 1
            if count % _BATCH == 0:
                progress(count)
        after = table_digests()
    tables = [TableReport(name, after[name][0], before[name][1], after[name][1]) for name in after]
    return RebuildReport(count, time.monotonic() - started, tables)


def table_digests() -> dict[str, tuple[int, str]]:
    """Return the number of rows and a digest over all of them, for every read model's table."""
    return {model._meta.db_table: _digest(model._meta.db_table) for model in read_models()}


def _digest(table: str) -> tuple[int, str]:
    digest, count = hashlib.sha256(), 0
    for row in rows.iterate(f'SELECT * FROM "{table}" ORDER BY 1, 2'):
        digest.update(repr(row).encode())
        count += 1
    return count, digest.hexdigest()
