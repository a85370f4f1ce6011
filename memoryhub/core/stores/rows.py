"""Run plain SQL in the current store, several times as fast as the ORM (decision 5)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import cache, lru_cache
from typing import Any

from django.db import connections, models

from memoryhub.core import clock
from memoryhub.core.stores.dialect import render
from memoryhub.core.stores.gathered import Gathered
from memoryhub.core.stores.routing import require_current_alias

_Adapter = Callable[[Any], Any]
# Rows that ``iterate`` reads at a time
_BATCH = 1000


def insert(model: type[models.Model], **values: Any) -> None:
    adapters, others, sql = _insert_plan(model, tuple(values))
    row = [adapt(value) if adapt else value for adapt, value in zip(adapters, values.values(), strict=True)]
    put(model._meta.db_table, sql, [*row, *others])


def put(table: str, sql: str, row: Sequence[Any]) -> None:
    """Run an INSERT into ``table``; inside ``gathering`` it is batched with similar ones."""
    alias = require_current_alias()
    gathering_alias, gathered = _gathered.get()
    if gathered is not None and alias == gathering_alias:
        gathered.add(table, sql, row)
    else:
        connections[alias].insert(table, sql, row)  # type: ignore[attr-defined]


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
    with connections[alias].gathering() as gathered:  # type: ignore[attr-defined]
        token = _gathered.set((alias, gathered))
        try:
            yield
        finally:
            _gathered.reset(token)


# The alias and its batched inserts: read for every row, when looking up the connection would cost as much as the
# insert.
_gathered: ContextVar[tuple[str, Gathered | None]] = ContextVar("gathered_inserts", default=("", None))


def update(model: type[models.Model], key: Any, **values: Any) -> None:
    columns = tuple(values)
    adapters = _adapters(model)
    primary_key = model._meta.pk.attname
    sql = _update_sql(model, columns, primary_key)
    row = [adapt(value) if (adapt := adapters[name]) else value for name, value in values.items()]
    execute(sql, [*row, key])


def execute(sql: str, parameters: list[Any] | tuple[Any, ...] = ()) -> None:
    connections[require_current_alias()].run(sql, parameters)  # type: ignore[attr-defined]


def fetch(sql: str, parameters: list[Any] | tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    connection = connections[require_current_alias()]
    with connection.wrap_database_errors:
        rows: list[tuple[Any, ...]] = connection.run(sql, parameters).fetchall()  # type: ignore[attr-defined]
    return rows


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
    others = [name for name in fields if name not in names]
    quoted = ", ".join(f'"{fields[name].column}"' for name in [*names, *others])
    sql = f'INSERT INTO "{model._meta.db_table}" ({quoted}) VALUES ({", ".join(["%s"] * len(fields))})'
    return [_adapters(model)[name] for name in names], [_default(model, name) for name in others], sql


def _default(model: type[models.Model], name: str) -> Any:
    (field,) = (field for field in model._meta.local_concrete_fields if field.attname == name)
    adapt = _adapters(model)[name]
    return adapt(field.get_default()) if adapt else field.get_default()


@cache
def _update_sql(model: type[models.Model], columns: tuple[str, ...], primary_key: str) -> str:
    fields = {field.attname: field.column for field in model._meta.local_concrete_fields}
    assignments = ", ".join(f'"{fields[name]}" = %s' for name in columns)
    table, key = model._meta.db_table, fields[primary_key]
    return f'UPDATE "{table}" SET {assignments} WHERE "{key}" = %s'


@cache
def _adapters(model: type[models.Model]) -> Mapping[str, _Adapter | None]:
    return {field.attname: _adapter(field) for field in model._meta.local_concrete_fields}


def _adapter(field: models.Field[Any, Any]) -> _Adapter | None:
    if isinstance(field, models.JSONField):
        return _json_value
    return time_value if isinstance(field, models.DateTimeField) else None


_encode = json.JSONEncoder(ensure_ascii=False, sort_keys=True).encode


def _json_value(value: Any) -> str | None:
    if value is None:
        return None
    return _encode(value) if value or not isinstance(value, list | dict) else _EMPTY[type(value)]


_EMPTY: Mapping[type, str] = {list: "[]", dict: "{}"}


def time_value(value: datetime | None) -> Any:
    return None if value is None else _adapted_time(value)


def time_text(stored: Any) -> str:
    """Return a time read by ``fetch`` in the log's format, such as ``2026-11-20T08:30:00.000Z``."""
    moment = stored if isinstance(stored, datetime) else datetime.fromisoformat(stored)
    return clock.to_text(moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment)


@lru_cache(maxsize=256)
def _adapted_time(value: datetime) -> Any:
    return connections[require_current_alias()].ops.adapt_datetimefield_value(value)
