"""Inserts that wait to be run together."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

# Batched rows per table; more would cost memory and gain nothing.
_AT_MOST = 500
_WORD = re.compile(r"\w+")

Row = Sequence[Any]
RunMany = Callable[[str, list[Row]], object]


# Batched rows by table. A statement that names a table first inserts its rows, so every reader sees them.
class Gathered:
    def __init__(self, run_many: RunMany) -> None:
        self._run_many = run_many
        self._waiting: dict[str, tuple[str, list[Row]]] = {}

    def add(self, table: str, sql: str, row: Row) -> None:
        known = self._waiting.get(table)
        if known and (known[0] != sql or len(known[1]) >= _AT_MOST):
            self._insert(table)
            known = None
        if known:
            known[1].append(row)
        else:
            self._waiting[table] = (sql, [row])

    def insert_named_in(self, sql: str) -> None:
        for table in self._waiting.keys() & _names(sql):
            self._insert(table)

    def insert_all(self) -> None:
        for table in list(self._waiting):
            self._insert(table)

    def _insert(self, table: str) -> None:
        sql, rows = self._waiting.pop(table)
        self._run_many(sql, rows)


class GathersInserts:
    """What a connection that batches inserts adds to Django's; its cursors first call ``insert_gathered``."""

    # None while inserts run at once.
    gathered: Gathered | None = None

    @contextmanager
    def gathering(self) -> Iterator[Gathered]:
        """Batch inserts inside the block, which must be in a transaction; after an error they are discarded."""
        if self.gathered is not None:
            yield self.gathered
            return
        self.gathered = Gathered(self._run_many)
        try:
            yield self.gathered
            self.gathered.insert_all()
        finally:
            self.gathered = None

    def insert(self, table: str, sql: str, row: Row) -> None:
        if self.gathered is None:
            self.run(sql, row)
        else:
            self.gathered.add(table, sql, row)

    def insert_gathered(self) -> None:
        if self.gathered is not None:
            self.gathered.insert_all()

    def run(self, sql: str, parameters: Sequence[Any]) -> Any:
        raise NotImplementedError

    def _run_many(self, sql: str, rows: list[Row]) -> None:
        raise NotImplementedError


@lru_cache(maxsize=1024)
def _names(sql: str) -> frozenset[str]:
    # The prefixes before underscores find the table of a shadow table: ``a_b`` of ``a_b_c``.
    words = set(_WORD.findall(sql))
    return frozenset(words | {word[: mark.start()] for word in words for mark in re.finditer("_", word)})
