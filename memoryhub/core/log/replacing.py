"""Giving a store what its copy has: what differs is found while others write, and put in place in a moment.

The copy and a snapshot of the store are compared row by row at one position of the log, and the keys of the rows that
differ are noted. From then on triggers note the keys of whatever the copy changes. Under the store's write lock the
copy takes the few events that came since, and only the rows whose keys were noted are compared again and written.

A late event may change a row in the store that it does not change in the copy, since it met other rows there: so where
there were late events, both are compared once more afterwards, and what still differs is put in place the same way.
"""

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
_FEW = 100
"""Events that others need not wait for long."""
_LOOKS = 3
_ROWS_AT_ONCE = 2000
_BEFORE_ALL = -(2**63)


class ErasedMeanwhile(Exception):
    """Others have erased or redacted events since the copy was begun, or put a backup back: its text is not theirs."""


class Replacing:
    """Brings what the current copy has into the store that it is a copy of.

    Args:
        source: the store's file.
        erasure: the ``last_erasure`` that the copy knows of.
        wanted: the read models whose rows the store is to have, with all that goes with their tables.
    """

    def __init__(self, source: Path, erasure: int, wanted: Sequence[Model]) -> None:
        self._source, self._erasure, self._wanted = source, erasure, wanted
        self._late = 0

    def catch_up(self) -> None:
        """Apply to the copy what others have written since, until only a few events are left for the lock.

        Raises:
            ErasedMeanwhile: what they have written does not follow on the copy's events.
        """
        for _ in range(_ROUNDS):
            with attached(self._source), transaction.atomic(using=require_current_alias()):
                late = self._take_late()
            if late < _FEW:
                return

    @contextmanager
    def compared(self) -> Iterator[set[Model]]:
        """Note which rows differ in a snapshot of the store, and let the block read both: ``main`` and ``LIVE``.

        Yields those of all read models of which rows differ.

        Raises:
            ErasedMeanwhile: nothing is compared.
        """
        with attached(self._source), transaction.atomic(using=require_current_alias()):
            self._take_late()
            yield {model for model in read_models() if note_differing(model)}

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the store's write lock, let the block add to both, and put what was noted in place: all or nothing.

        Raises:
            ErasedMeanwhile: nothing is put in place.
        """
        with attached(self._source, write=True), transaction.atomic(using=require_current_alias()):
            self._late = self._take_late()
            yield
            for model in self._wanted:
                put_noted(model)
                _put_companions(model)
        self._erasure = last_erasure()

    def settle(self) -> None:
        """Look again after late events, and put in place what they made of rows that differed before."""
        with suppress(ErasedMeanwhile):
            for _ in range(_LOOKS):
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
    """Return whether the store has the copy's last event still: a backup that is put back may end before it."""
    position, digest = head()
    kept = rows.fetch(f"SELECT chain_digest FROM {LIVE}.raw_events WHERE position = %s", [position])
    return not position or kept == [(digest,)]


def note_differing(model: Model) -> bool:
    """Note the keys of the rows that differ, and from now on those that the copy changes; return whether any do."""
    table = _Table(model)
    for sql in table.watch():
        rows.execute(sql)
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
    """Give the store the copy's rows of the noted keys, but for those that are the same by now."""
    table = _Table(model)
    for first, last in _pages(table.noted):
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
    """What the statements about a read model's table are made of."""

    def __init__(self, model: Model) -> None:
        names = [f'"{field.column}"' for field in model._meta.local_concrete_fields]
        self.name, self._key = model._meta.db_table, [f'"{field.column}"' for field in model._meta.pk_fields]
        self.columns = ", ".join(names)
        self.same_key = " AND ".join(f"l.{name} = m.{name}" for name in self._key)
        self.same_row = f"({columns_of('l', names)}) IS ({columns_of('m', names)})"
        self.noted = f'temp."differing_{self.name}"'
        self.page = f"(SELECT {', '.join(self._key)} FROM {self.noted} WHERE rowid > %s AND rowid <= %s)"

    def keys(self, row: str) -> str:
        """Return the key's columns of a row that the statement calls so."""
        return columns_of(row, self._key)

    def watch(self) -> Iterator[str]:
        """Yield what notes the key of every row that the copy changes; to be run once or again."""
        key = ", ".join(self._key)
        yield f"CREATE TEMP TABLE IF NOT EXISTS differing_{self.name} ({key})"
        for event, changed in (("INSERT", ("NEW",)), ("UPDATE", ("OLD", "NEW")), ("DELETE", ("OLD",))):
            note = [f"INSERT INTO differing_{self.name} VALUES ({self.keys(row)});" for row in changed]
            yield (
                f"CREATE TEMP TRIGGER IF NOT EXISTS note_{event}_{self.name} AFTER {event} "
                f'ON main."{self.name}" BEGIN {" ".join(note)} END'
            )


def columns_of(row: str, names: Sequence[str]) -> str:
    """Return the columns of an aliased row as SQL, such as ``l.id, l.title``."""
    return ", ".join(f"{row}.{name}" for name in names)


def _put_companions(model: Model) -> None:
    """Replace all rows of what goes with a table, and that no model describes."""
    for companion in companions_of(model._meta.db_table):
        if rows.fetch("SELECT 1 FROM main.sqlite_master WHERE name = %s", [companion]):
            _copy_rows(companion)


def _copy_rows(table: str) -> None:
    copy = f'INSERT INTO {LIVE}."{table}" SELECT * FROM main."{table}"'
    rows.execute(f'DELETE FROM {LIVE}."{table}"')
    if rows.fetch("SELECT wr FROM pragma_table_list WHERE schema = 'main' AND name = %s", [table])[0][0]:
        rows.execute(copy)  # it has no row ids to go by; such is the small list of an index's pages
        return
    for first, last in _pages(f'main."{table}"'):
        rows.execute(f"{copy} WHERE rowid > %s AND rowid <= %s", [first, last])


def _pages(table: str) -> Iterator[tuple[int, int]]:
    """Yield row ids that some rows at a time are between: SQLite keeps in memory what would undo a statement."""
    page = f"SELECT rowid AS id FROM {table} WHERE rowid > %s ORDER BY rowid LIMIT {_ROWS_AT_ONCE}"
    done = _BEFORE_ALL
    while (last := rows.fetch(f"SELECT max(id) FROM ({page})", [done])[0][0]) is not None:
        yield done, last
        done = last
