"""Inserts that wait for one another: many into one table, one after the other, cost a fraction of as many apart."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

_AT_MOST = 500
"""Rows of a table that wait; more cost memory and gain nothing."""
_WORD = re.compile(r"\w+")

Row = Sequence[Any]
RunMany = Callable[[str, list[Row]], object]


class Gathered:
    """The rows that wait, by table. Whoever names a table has its rows inserted first, so nobody misses them."""

    def __init__(self, run_many: RunMany) -> None:
        self._run_many = run_many
        self._waiting: dict[str, tuple[str, list[Row]]] = {}

    def add(self, table: str, sql: str, row: Row) -> None:
        """Let a row wait that ``sql`` inserts into ``table``; rows of one table keep their order."""
        known = self._waiting.get(table)
        if known and (known[0] != sql or len(known[1]) >= _AT_MOST):
            self._insert(table)
            known = None
        if known:
            known[1].append(row)
        else:
            self._waiting[table] = (sql, [row])

    def insert_named_in(self, sql: str) -> None:
        """Insert the rows of every table that a statement names, or whose shadow tables it does."""
        for table in self._waiting.keys() & _names(sql):
            self._insert(table)

    def insert_all(self) -> None:
        """Insert every row that waits."""
        for table in list(self._waiting):
            self._insert(table)

    def _insert(self, table: str) -> None:
        sql, rows = self._waiting.pop(table)
        self._run_many(sql, rows)


@lru_cache(maxsize=1024)
def _names(sql: str) -> frozenset[str]:
    """Return the words of a statement, and what stands before an underscore in each: ``a_b`` of ``a_b_c``."""
    words = set(_WORD.findall(sql))
    return frozenset(words | {word[: mark.start()] for word in words for mark in re.finditer("_", word)})
