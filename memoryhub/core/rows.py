"""Writing rows of read models. Projectors alone use it: plain statements, several times as fast as ``save()``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import cache, lru_cache
from typing import Any

from django.db import connections, models

from memoryhub.core.routing import require_current_alias

_Adapter = Callable[[Any], Any]


def insert(model: type[models.Model], **values: Any) -> None:
    """Insert one row; fields that are not named take their model's default."""
    columns, adapters, defaults, sql = _insert_plan(model)
    row = [
        adapt(values.pop(name) if name in values else default())
        for name, adapt, default in zip(columns, adapters, defaults, strict=True)
    ]
    if values:
        raise TypeError(f"{model.__name__} has no column {sorted(values)}")
    execute(sql, row)


def update(model: type[models.Model], key: Any, **values: Any) -> None:
    """Change columns of the row whose primary key is ``key``."""
    columns = tuple(values)
    adapters = _adapters(model)
    primary_key = model._meta.pk.attname
    sql = _update_sql(model, columns, primary_key)
    execute(sql, [*(adapters[name](values[name]) for name in columns), key])


def execute(sql: str, parameters: list[Any] | tuple[Any, ...] = ()) -> None:
    """Run one statement in the current store."""
    connections[require_current_alias()].run(sql, parameters)  # type: ignore[attr-defined]


def fetch(sql: str, parameters: list[Any] | tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Run one query in the current store and return its rows."""
    connection = connections[require_current_alias()]
    with connection.wrap_database_errors:
        rows: list[tuple[Any, ...]] = connection.run(sql, parameters).fetchall()  # type: ignore[attr-defined]
    return rows


def iterate(sql: str) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of one query in the current store, a thousand in memory at a time."""
    cursor = connections[require_current_alias()].run(sql, ())  # type: ignore[attr-defined]
    while batch := cursor.fetchmany(1000):
        yield from batch


@cache
def _insert_plan(model: type[models.Model]) -> tuple[list[str], list[_Adapter], list[Callable[[], Any]], str]:
    fields = model._meta.local_concrete_fields
    names = [field.attname for field in fields]
    quoted = ", ".join(f'"{field.column}"' for field in fields)
    marks = ", ".join(["%s"] * len(fields))
    sql = f'INSERT INTO "{model._meta.db_table}" ({quoted}) VALUES ({marks})'
    adapters = _adapters(model)
    return names, [adapters[name] for name in names], [field.get_default for field in fields], sql


@cache
def _update_sql(model: type[models.Model], columns: tuple[str, ...], primary_key: str) -> str:
    fields = {field.attname: field.column for field in model._meta.local_concrete_fields}
    assignments = ", ".join(f'"{fields[name]}" = %s' for name in columns)
    table, key = model._meta.db_table, fields[primary_key]
    return f'UPDATE "{table}" SET {assignments} WHERE "{key}" = %s'


@cache
def _adapters(model: type[models.Model]) -> Mapping[str, _Adapter]:
    return {field.attname: _adapter(field) for field in model._meta.local_concrete_fields}


def _adapter(field: models.Field[Any, Any]) -> _Adapter:
    if isinstance(field, models.JSONField):
        return lambda value: None if value is None else json.dumps(value, ensure_ascii=False, sort_keys=True)
    if isinstance(field, models.DateTimeField):
        return time_value
    return _as_it_is


def time_value(value: datetime | None) -> Any:
    """Return a time as the current store's database keeps it."""
    return None if value is None else _adapted_time(value)


@lru_cache(maxsize=256)
def _adapted_time(value: datetime) -> Any:
    return connections[require_current_alias()].ops.adapt_datetimefield_value(value)


def _as_it_is(value: Any) -> Any:
    return value
