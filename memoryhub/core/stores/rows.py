"""Run plain SQL in the current store, several times as fast as the ORM, and batch inserts (decision 5)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from functools import cache, lru_cache, update_wrapper
from itertools import islice
from typing import Any, Generic, ParamSpec, TypeVar

from django.db import connections, models

from memoryhub.core import clock
from memoryhub.core.stores.dialect import render
from memoryhub.core.stores.routing import require_current_alias

_Adapter = Callable[[Any], Any]
# A statement and its parameters
Query = tuple[str, Sequence[Any]]
# The rows of several queries
Answers = list[list[tuple[Any, ...]]]
P = ParamSpec("P")
T = TypeVar("T")
# Yields queries that may be sent at once, is sent their rows, and returns what they say
Steps = Generator[Sequence[Query], Answers, T]
# Rows that ``iterate`` reads at a time
_BATCH = 1000


def insert(model: type[models.Model], **values: Any) -> None:
    adapters, defaults, sql = _insert_plan(model, tuple(values))
    row = [adapt(value) if adapt else value for adapt, value in zip(adapters, values.values(), strict=True)]
    put(model._meta.db_table, sql, [*row, *defaults])


def put(table: str, sql: str, row: Sequence[Any]) -> None:
    """Run an INSERT into ``table``; inside ``gathering`` it is batched with similar ones."""
    alias = require_current_alias()
    gathering_alias, gathered = _gathered.get()
    if gathered is None or alias != gathering_alias:
        connection: Any = connections[alias]
        gathered = connection.gathered
        if gathered is None:
            connection.run(sql, row)
            return
    gathered.add(table, sql, row)


def defer(function: Callable[[Sequence[int]], None], number: int, *, before: frozenset[str]) -> None:
    """Call a function with all numbers that were deferred, in order; outside of ``gathering``, at once.

    It is called when a statement names one of the tables ``before``, or the block ends.
    """
    gathered: Gathered | None = connections[require_current_alias()].gathered  # type: ignore[attr-defined]
    if gathered is None:
        function([number])
    else:
        gathered.defer(function, number, before)


def require_transaction() -> None:
    """Raise RuntimeError unless a transaction of the current store is open, which holds its write lock."""
    if not connections[require_current_alias()].in_atomic_block:
        raise RuntimeError("this needs an open transaction")


@contextmanager
def gathering() -> Iterator[None]:
    """Batch ``insert`` and ``put`` inside the block until a statement names their table or the block ends.

    Readers still see every row. The block must be inside a transaction, which an error must roll back.
    """
    alias = require_current_alias()
    connection: Any = connections[alias]
    outer: Gathered | None = connection.gathered
    connection.gathered = gathered = outer or Gathered(connection.run_many)
    token = _gathered.set((alias, gathered))
    try:
        yield
        if outer is None:
            gathered.insert_all()
    finally:
        _gathered.reset(token)
        connection.gathered = outer


# The alias and its batched inserts: read for every row, when looking up the connection would cost as much as the
# insert.
_gathered: ContextVar[tuple[str, Gathered | None]] = ContextVar("gathered_inserts", default=("", None))


def update(model: type[models.Model], key: Any, **values: Any) -> None:
    adapters, sql = _update_plan(model, tuple(values))
    row = [adapt(value) if adapt else value for adapt, value in zip(adapters, values.values(), strict=True)]
    execute(sql, [*row, key])


def execute(sql: str, parameters: list[Any] | tuple[Any, ...] = ()) -> None:
    connections[require_current_alias()].run(sql, parameters)  # type: ignore[attr-defined]


def fetch(sql: str, parameters: list[Any] | tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    connection = connections[require_current_alias()]
    with connection.wrap_database_errors:
        rows: list[tuple[Any, ...]] = connection.run(sql, parameters).fetchall()  # type: ignore[attr-defined]
    return rows


def fetch_together(queries: Sequence[Query]) -> list[list[tuple[Any, ...]]]:
    """Return the rows of each query; a database server gets them all at once."""
    connection: Any = connections[require_current_alias()]
    answers: Answers = connection.fetch_together(queries)
    return answers


class InSteps(Generic[P, T]):
    """A function that yields its queries; called as usual it runs alone, by its ``steps`` beside others.

    As a decorator of a generator function, see ``Steps``::

        titles, tags = rows.together(titles_of.steps(ids), tags_of.steps(ids))
    """

    def __init__(self, steps: Callable[P, Steps[T]]) -> None:
        self.steps = steps
        update_wrapper(self, steps)

    def __call__(self, *args: P.args, **options: P.kwargs) -> T:
        return finish(self.steps(*args, **options))


def together(*functions: Steps[Any]) -> list[Any]:
    """Return what several functions in steps return; what they ask at the same time is one round trip."""
    return finish(side_by_side(*functions))


def side_by_side(*functions: Steps[Any]) -> Steps[list[Any]]:
    """Run functions in steps beside each other within another one; see ``together``."""
    results: dict[int, Any] = {}
    answers: dict[int, Any] = dict.fromkeys(range(len(functions)))
    while answers:
        queries: dict[int, Sequence[Query]] = {}
        for number, answer in answers.items():
            try:
                queries[number] = functions[number].send(answer)
            except StopIteration as end:
                results[number] = end.value
        if queries:
            lists = iter((yield [query for part in queries.values() for query in part]))
        answers = {number: list(islice(lists, len(part))) for number, part in queries.items()}
    return [results[number] for number in range(len(functions))]


def finish(steps: Steps[T]) -> T:
    """Return what one function in steps returns."""
    answers: Any = None
    while True:
        try:
            queries = steps.send(answers)
        except StopIteration as end:
            result: T = end.value
            return result
        answers = fetch_together(queries) if queries else []


def column(sql: str, parameters: list[Any] | tuple[Any, ...] = ()) -> list[Any]:
    """Return the values of a query with one column."""
    return [value for (value,) in fetch(sql, parameters)]


def meta(key: str) -> str | None:
    """Return the value of a key of ``store_meta``, which has what is not in the log; None if there is none."""
    return next(iter(column("SELECT value FROM store_meta WHERE key = %s", [key])), None)


def put_meta(key: str, value: str, *, table: str = "store_meta") -> None:
    execute(_PUT_META.format(table=table), [key, value])


_PUT_META = "INSERT INTO {table} (key, value) VALUES (%s, %s) ON CONFLICT (key) DO UPDATE SET value = excluded.value"


def rendered(sql: str) -> str:
    return render(sql, connections[require_current_alias()].vendor)


def iterate(sql: str, parameters: list[Any] | tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of one state of the store, of which this process holds only some at a time."""
    for batch in connections[require_current_alias()].batches(sql, parameters, _BATCH):  # type: ignore[attr-defined]
        yield from batch


@cache
def _insert_plan(model: type[models.Model], names: tuple[str, ...]) -> tuple[list[_Adapter | None], list[Any], str]:
    fields = {field.attname: field for field in model._meta.local_concrete_fields}
    unknown = set(names) - set(fields)
    if unknown:
        raise TypeError(f"{model.__name__} has no column {sorted(unknown)}")
    adapters = _adapters(model)
    defaults = []
    columns = [fields[name].column for name in names]
    for name, field in fields.items():
        if name not in names:
            adapt, default = adapters[name], field.get_default()
            defaults.append(adapt(default) if adapt else default)
            columns.append(field.column)
    quoted = ", ".join(f'"{column}"' for column in columns)
    sql = f'INSERT INTO "{model._meta.db_table}" ({quoted}) VALUES ({", ".join(["%s"] * len(columns))})'
    return [adapters[name] for name in names], defaults, sql


@cache
def _update_plan(model: type[models.Model], names: tuple[str, ...]) -> tuple[list[_Adapter | None], str]:
    adapters = _adapters(model)
    columns = {field.attname: field.column for field in model._meta.local_concrete_fields}
    assignments = ", ".join(f'"{columns[name]}" = %s' for name in names)
    sql = f'UPDATE "{model._meta.db_table}" SET {assignments} WHERE "{model._meta.pk.column}" = %s'
    return [adapters[name] for name in names], sql


@cache
def _adapters(model: type[models.Model]) -> Mapping[str, _Adapter | None]:
    adapters: dict[str, _Adapter | None] = {}
    for field in model._meta.local_concrete_fields:
        adapters[field.attname] = None
        if isinstance(field, models.JSONField):
            adapters[field.attname] = _json_value
        elif isinstance(field, models.DateTimeField):
            adapters[field.attname] = time_value
    return adapters


_encode = json.JSONEncoder(ensure_ascii=False, sort_keys=True).encode


def _json_value(value: Any) -> str | None:
    return None if value is None else _encode(value)


@lru_cache(maxsize=256)
def time_value(value: datetime | None) -> Any:
    return connections[require_current_alias()].ops.adapt_datetimefield_value(value)


def time_of(stored: Any) -> datetime:
    """Return a time read by ``fetch``, in UTC."""
    return clock.in_utc(stored if isinstance(stored, datetime) else datetime.fromisoformat(stored))


def time_text(stored: Any) -> str:
    """Return a time read by ``fetch`` in the log's format, such as ``2026-11-20T08:30:00.000Z``."""
    return clock.to_text(time_of(stored))


# Batched rows per table; more would cost memory and gain nothing.
_AT_MOST = 500
_WORD = re.compile(r"\w+")

Row = Sequence[Any]


# Batched rows by table. A statement that names a table first inserts its rows, so every reader sees them.
class Gathered:
    def __init__(self, run_many: Callable[[str, list[Row]], object]) -> None:
        self._run_many = run_many
        self._waiting: dict[str, tuple[str, list[Row]]] = {}
        self._deferred: dict[Callable[[Sequence[int]], None], tuple[frozenset[str], set[int]]] = {}

    def add(self, table: str, sql: str, row: Row) -> None:
        batch = self._waiting.get(table)
        if batch and (batch[0] != sql or len(batch[1]) >= _AT_MOST):
            self._insert(table)
            batch = None
        if batch:
            batch[1].append(row)
        else:
            self._waiting[table] = (sql, [row])

    def defer(self, function: Callable[[Sequence[int]], None], number: int, before: frozenset[str]) -> None:
        _, numbers = self._deferred.setdefault(function, (before, set()))
        numbers.add(number)
        if len(numbers) >= _AT_MOST:
            self._call(function)

    def insert_named_in(self, sql: str) -> None:
        tables = _tables_named(sql)
        for function in [function for function, (before, _) in self._deferred.items() if before & tables]:
            self._call(function)
        for table in self._waiting.keys() & tables:
            self._insert(table)

    def insert_all(self) -> None:
        while self._deferred:
            self._call(next(iter(self._deferred)))
        for table in list(self._waiting):
            self._insert(table)

    def _call(self, function: Callable[[Sequence[int]], None]) -> None:
        _, numbers = self._deferred.pop(function)
        function(sorted(numbers))

    def _insert(self, table: str) -> None:
        sql, rows = self._waiting.pop(table)
        self._run_many(sql, rows)


@lru_cache(maxsize=1024)
def _tables_named(sql: str) -> frozenset[str]:
    # The prefixes before underscores find the table of a shadow table: ``a_b`` of ``a_b_c``.
    words = set(_WORD.findall(sql))
    return frozenset(words | {word[: mark.start()] for word in words for mark in re.finditer("_", word)})
