"""Inserts that wait to be run together."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
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


@lru_cache(maxsize=1024)
def _names(sql: str) -> frozenset[str]:
    # The prefixes before underscores find the table of a shadow table: ``a_b`` of ``a_b_c``.
    words = set(_WORD.findall(sql))
    return frozenset(words | {word[: mark.start()] for word in words for mark in re.finditer("_", word)})
