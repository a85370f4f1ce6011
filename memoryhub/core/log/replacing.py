"""Replace the rows of a store by those of its copy, with a short write lock (decision 29)."""

# The copy is compared with a snapshot of the store while others write, and the keys of differing rows are recorded.
# From then on, temporary triggers record the keys of rows that the copy changes. Under the store's write lock the
# copy applies the few events that came since, and only rows with recorded keys are compared again and written. A late
# event may change a row in the store but not in the copy, where it found other rows; so after late events both are
# compared once more.

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from django.db import models, transaction

from memoryhub.core.events.projection import companions_of, read_models
from memoryhub.core.log.copy import LIVE, apply_events, attached, take_events
from memoryhub.core.log.read import head, last_erasure
from memoryhub.core.stores import rows
from memoryhub.core.stores.routing import require_current_alias

Model = type[models.Model]

_ROUNDS = 5
# A number of events that is applied quickly enough to do it under the lock.
_FEW = 100
_ATTEMPTS = 3
_ROWS_AT_ONCE = 2000
_BEFORE_ALL = -(2**63)


class ErasedMeanwhile(Exception):
    """Since the copy was started, text was erased or redacted, or a backup was restored."""


class Replacing:
    """Transfers what the current copy contains to the store that it was built from."""

    def __init__(self, source: Path, erasure: int, wanted: Sequence[Model]) -> None:
        self._source, self._erasure, self._wanted = source, erasure, wanted
        self._late = 0

    def catch_up(self) -> None:
        """Apply new events to the copy until only a few are left for the lock."""
        for _ in range(_ROUNDS):
            with attached(self._source), transaction.atomic(using=require_current_alias()):
                late = self._take_late()
            if late < _FEW:
                return

    @contextmanager
    def compared(self) -> Iterator[set[Model]]:
        """Record which rows differ in a snapshot of the store, and yield their models; the block can read both."""
        with attached(self._source), transaction.atomic(using=require_current_alias()):
            self._take_late()
            yield {model for model in read_models() if note_differing(model)}

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the store's write lock, let the block change both, then replace the recorded rows: all or nothing."""
        with attached(self._source, write=True), transaction.atomic(using=require_current_alias()):
            self._late = self._take_late()
            yield
            for model in self._wanted:
                put_noted(model)
                _put_companions(model)
        self._erasure = last_erasure()

    def settle(self) -> None:
        """Compare again if events came after the comparison, and replace what still differs."""
        with suppress(ErasedMeanwhile):
            for _ in range(_ATTEMPTS):
                if not self._late or not self._differs():
                    return
                with self.locked():
                    pass

    def _differs(self) -> bool:
        with self.compared() as differing:
            return not differing.isdisjoint(self._wanted)

    def _take_late(self) -> int:
        if last_erasure(LIVE) != self._erasure or not is_of_one_log():
            raise ErasedMeanwhile
        return apply_events(take_events(head(LIVE)[0]))


def is_of_one_log() -> bool:
    """Return whether the store still has the copy's last event; a restored backup may end before it."""
    position, digest = head()
    kept = rows.fetch(f"SELECT chain_digest FROM {LIVE}.raw_events WHERE position = %s", [position])
    return not position or kept == [(digest,)]


def note_differing(model: Model) -> bool:
    """Record the keys of differing rows, and from now on of rows that the copy changes; return whether any differ."""
    table = _Table(model)
    for sql in table.watch():
        rows.execute(sql)
    # Rows that are missing or different in the copy, then rows that only the copy has.
    rows.execute(f"DELETE FROM {table.noted}")
    rows.execute(
        f'INSERT INTO {table.noted} SELECT {table.keys("l")} FROM {LIVE}."{table.name}" AS l WHERE NOT EXISTS '
        f'(SELECT 1 FROM main."{table.name}" AS m WHERE {table.same_key} AND {table.same_row})'
    )
    rows.execute(
        f'INSERT INTO {table.noted} SELECT {table.keys("m")} FROM main."{table.name}" AS m WHERE NOT EXISTS '
        f'(SELECT 1 FROM {LIVE}."{table.name}" AS l WHERE {table.same_key})'
    )
    return bool(rows.fetch(f"SELECT 1 FROM {table.noted} LIMIT 1"))


def put_noted(model: Model) -> None:
    """Copy the rows with recorded keys to the store, except those that are equal by now."""
    table = _Table(model)
    for first, last in _pages(table.noted):
        # Deletes all outdated rows before any insert: a new row may reuse a unique value of an old one.
        rows.execute(
            f'DELETE FROM {LIVE}."{table.name}" AS l WHERE ({table.keys("l")}) IN {table.page} AND NOT EXISTS '
            f'(SELECT 1 FROM main."{table.name}" AS m WHERE {table.same_key} AND {table.same_row})',
            [first, last],
        )
    for first, last in _pages(table.noted):
        rows.execute(
            f'INSERT INTO {LIVE}."{table.name}" ({table.columns}) SELECT {table.columns} FROM main."{table.name}" AS m '
            f"WHERE ({table.keys('m')}) IN {table.page} AND NOT EXISTS "
            f'(SELECT 1 FROM {LIVE}."{table.name}" AS l WHERE {table.same_key})',
            [first, last],
        )


class _Table:
    def __init__(self, model: Model) -> None:
        names = [f'"{field.column}"' for field in model._meta.local_concrete_fields]
        self.name, self._key = model._meta.db_table, [f'"{field.column}"' for field in model._meta.pk_fields]
        self.columns = ", ".join(names)
        self.same_key = " AND ".join(f"l.{name} = m.{name}" for name in self._key)
        self.same_row = f"({columns_of('l', names)}) IS ({columns_of('m', names)})"
        self.noted = f'temp."differing_{self.name}"'
        self.page = f"(SELECT {', '.join(self._key)} FROM {self.noted} WHERE rowid > %s AND rowid <= %s)"

    def keys(self, row: str) -> str:
        return columns_of(row, self._key)

    def watch(self) -> Iterator[str]:
        key = ", ".join(self._key)
        yield f"CREATE TEMP TABLE IF NOT EXISTS differing_{self.name} ({key})"
        for event, changed in (("INSERT", ("NEW",)), ("UPDATE", ("OLD", "NEW")), ("DELETE", ("OLD",))):
            note = [f"INSERT INTO differing_{self.name} VALUES ({self.keys(row)});" for row in changed]
            yield (
                f"CREATE TEMP TRIGGER IF NOT EXISTS note_{event}_{self.name} AFTER {event} "
                f'ON main."{self.name}" BEGIN {" ".join(note)} END'
            )


def columns_of(row: str, names: Sequence[str]) -> str:
    return ", ".join(f"{row}.{name}" for name in names)


def _put_companions(model: Model) -> None:
    for companion in companions_of(model._meta.db_table):
        if rows.fetch("SELECT 1 FROM main.sqlite_master WHERE name = %s", [companion]):
            _copy_rows(companion)


def _copy_rows(table: str) -> None:
    copy = f'INSERT INTO {LIVE}."{table}" SELECT * FROM main."{table}"'
    rows.execute(f'DELETE FROM {LIVE}."{table}"')
    if rows.fetch("SELECT wr FROM pragma_table_list WHERE schema = 'main' AND name = %s", [table])[0][0]:
        # WITHOUT ROWID, so it has no pages; of the full-text index, only a small table is like that.
        rows.execute(copy)
        return
    for first, last in _pages(f'main."{table}"'):
        rows.execute(f"{copy} WHERE rowid > %s AND rowid <= %s", [first, last])


def _pages(table: str) -> Iterator[tuple[int, int]]:
    """Yield bounds of row ids for pages of rows: SQLite keeps the undo data of one statement in memory."""
    page = f"SELECT rowid AS id FROM {table} WHERE rowid > %s ORDER BY rowid LIMIT {_ROWS_AT_ONCE}"
    done = _BEFORE_ALL
    while (last := rows.fetch(f"SELECT max(id) FROM ({page})", [done])[0][0]) is not None:
        yield done, last
        done = last
