"""What differs between a store and its copy or its template, for every database: rows and schema."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from itertools import groupby
from typing import Any

from django.db.models import BinaryField, BooleanField, FloatField

from memoryhub.core.backends.base import HERE, LIVE, Model
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import columns_of, either

# How many changes of a schema are named
_CHANGES = 3


class Differing:
    """A table of the copy (``m``) and of the store (``l``), and the table that records the keys of differing rows."""

    def __init__(self, model: Model) -> None:
        names = [f'"{field.column}"' for field in model._meta.local_concrete_fields]
        self.name = model._meta.db_table
        self.key = [f'"{field.column}"' for field in model._meta.pk_fields]
        self.records = f'{either("temp", HERE)}."differing_{self.name}"'
        self._columns = ", ".join(names)
        self._here = f'{HERE}."{self.name}"'
        self._live = f'{LIVE}."{self.name}"'
        self._same_key = " AND ".join(f"l.{name} = m.{name}" for name in self.key)
        are_equal = f"({columns_of('l', names)}) IS NOT DISTINCT FROM ({columns_of('m', names)})"
        self._same_row = f"{self._same_key} AND {are_equal}"

    def keys(self, row: str) -> str:
        return columns_of(row, self.key)

    def find(self) -> bool:
        """Record the keys of the rows that differ; return whether there are any."""
        rows.execute(f"DELETE FROM {self.records}")
        # Rows that are missing or different in the copy, then rows that only the copy has.
        rows.execute(
            f"INSERT INTO {self.records} SELECT {self.keys('l')} FROM {self._live} AS l "
            f"WHERE NOT EXISTS (SELECT 1 FROM {self._here} AS m WHERE {self._same_row})"
        )
        rows.execute(
            f"INSERT INTO {self.records} SELECT {self.keys('m')} FROM {self._here} AS m "
            f"WHERE NOT EXISTS (SELECT 1 FROM {self._live} AS l WHERE {self._same_key})"
        )
        return bool(rows.fetch(f"SELECT 1 FROM {self.records} LIMIT 1"))

    # All outdated rows are deleted before any insert: a new row may reuse a unique value of an old one.
    def delete_outdated(self, keys: str, parameters: tuple[int, ...] = ()) -> None:
        """Delete rows of the store whose keys the query ``keys`` returns, except those that are equal in the copy."""
        rows.execute(
            f"DELETE FROM {self._live} AS l WHERE ({self.keys('l')}) IN ({keys}) "
            f"AND NOT EXISTS (SELECT 1 FROM {self._here} AS m WHERE {self._same_row})",
            parameters,
        )

    def insert_missing(self, keys: str, parameters: tuple[int, ...] = ()) -> None:
        """Copy the rows whose keys the query ``keys`` returns to the store, except those that it has."""
        rows.execute(
            f"INSERT INTO {self._live} ({self._columns}) SELECT {self._columns} FROM {self._here} AS m "
            f"WHERE ({self.keys('m')}) IN ({keys}) "
            f"AND NOT EXISTS (SELECT 1 FROM {self._live} AS l WHERE {self._same_key})",
            parameters,
        )


def recorded(model: Model, *, limit: int) -> tuple[int, tuple[str, ...]]:
    table = Differing(model)
    count = rows.fetch(f"SELECT count(*) FROM {table.records}")[0][0]
    key = " || '/' || ".join(table.key)
    first_keys = rows.column(f"SELECT {key} FROM {table.records} ORDER BY 1 LIMIT {limit}")
    return count, tuple(map(str, first_keys))


def schema_changes(changes: list[str]) -> str:
    """Return the first changes of a store's schema as a sentence; "" if there are none."""
    if not changes:
        return ""
    more = f" and {len(changes) - _CHANGES} more" if len(changes) > _CHANGES else ""
    return f"the store's schema was changed: {', '.join(changes[:_CHANGES])}{more}"


def _lengths_and_texts(fields: Iterable[Any]) -> str:
    sqlite, postgresql = [], []
    for field in fields:
        column = f'"{field.column}"'
        sqlite.append(f"coalesce(length(CAST({column} AS BLOB)) || ':' || {column}, '-')")
        text = f"{column}::text"
        if isinstance(field, BooleanField):
            text = f"{column}::int::text"
        elif isinstance(field, BinaryField):
            text = f"convert_from({column}, 'UTF8')"
        postgresql.append(f"coalesce(octet_length({text}) || ':' || {text}, '-')")
    # As bytes, because a damaged file of SQLite may have texts that are not in UTF-8
    return either(f"CAST({' || '.join(sqlite)} AS BLOB)", " || ".join(postgresql))


def table_digest(model: Model, database: str) -> tuple[int, str]:
    """Return the number of rows, and the digest of their values as texts, each with its length in bytes."""
    # The database joins the texts, which takes a fraction of the time. Floats are spelt here: databases, and versions
    # of them, write these with other digits.
    parts = []
    for are_floats, fields in groupby(model._meta.local_concrete_fields, lambda field: isinstance(field, FloatField)):
        if are_floats:
            parts.append(columns_of("t", [f'"{field.column}"' for field in fields]))
        else:
            parts.append(_lengths_and_texts(fields))
    # Qualified, because a bare name may mean the text that is selected under it
    key = columns_of("t", [f'"{field.column}"' for field in model._meta.pk_fields])
    digest = hashlib.sha256()
    count = 0
    for row in rows.iterate(f'SELECT {", ".join(parts)} FROM {database}."{model._meta.db_table}" AS t ORDER BY {key}'):
        for value in row:
            if isinstance(value, bytes):
                digest.update(value)
            elif value is None:
                digest.update(b"-")
            elif isinstance(value, str):
                digest.update(value.encode())
            else:
                digest.update(f"{len(repr(value))}:{value!r}".encode())
        count += 1
    return count, digest.hexdigest()
