"""The SQL that SQLite and PostgreSQL write differently.

Each helper returns a text that holds both forms. The connection takes its own when it runs the statement, so a
statement can be a constant that is made before any store is open.

What both databases read the same way needs no helper: ``ON CONFLICT … DO NOTHING`` and ``DO UPDATE``, ``IS DISTINCT
FROM``, ``true`` and ``false``, ``CAST(… AS bigint)``. Statements with a helper go through ``rows``, not a cursor.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

# Control characters, which are in no statement: begin, between the two forms, end
_BEGIN, _BETWEEN, _END = "\x01", "\x02", "\x03"
_INNERMOST = re.compile(f"{_BEGIN}([^{_BEGIN}{_END}]*){_BETWEEN}([^{_BEGIN}{_END}]*){_END}")
_FORMS = {"sqlite": r"\1", "postgresql": r"\2"}


def either(sqlite: str, postgresql: str) -> str:
    """Return the two forms of a part of a statement as one text; both may contain others."""
    return f"{_BEGIN}{sqlite}{_BETWEEN}{postgresql}{_END}"


def render(statement: str, vendor: str) -> str:
    """Return a statement in the form of a database, by the ``vendor`` of its connection."""
    while _BEGIN in statement:
        statement = _INNERMOST.sub(_FORMS[vendor], statement)
    return statement


def json_list(values: Iterable[Any]) -> str:
    """Return values as the one parameter of ``IDS``, ``TEXTS``, ``elements`` and ``int_elements``."""
    return json.dumps(list(values))


# What stands behind IN, for a parameter of any number of values: ``f"id IN {IDS}"`` with ``[json_list(ids)]``
IDS = either(
    "(SELECT value FROM json_each(%s))", "(SELECT CAST(value AS bigint) FROM jsonb_array_elements_text(%s::jsonb))"
)
TEXTS = either("(SELECT value FROM json_each(%s))", "(SELECT value FROM jsonb_array_elements_text(%s::jsonb))")


def elements(source: str = "%s", *path: str) -> str:
    """Return a FROM item with a row for each element of a JSON array, in the column ``value``; it needs an alias."""
    return either(_json_each(source, path), f"jsonb_array_elements_text({_inside(source, path)})")


def int_elements(source: str = "%s", *path: str) -> str:
    """Return the same of an array of whole numbers."""
    numbers = f"SELECT CAST(value AS bigint) AS value FROM jsonb_array_elements_text({_inside(source, path)})"
    return either(_json_each(source, path), f"LATERAL ({numbers})")


def entries(source: str = "%s", *path: str) -> str:
    """Return a FROM item with a row for each entry of a JSON object: ``key`` and ``value``; it needs an alias."""
    return either(_json_each(source, path), f"jsonb_each_text({_inside(source, path)})")


def int_entries(source: str = "%s", *path: str) -> str:
    """Return the same of an object whose values are whole numbers; its keys are texts."""
    numbers = f"SELECT key, CAST(value AS bigint) AS value FROM jsonb_each_text({_inside(source, path)})"
    return either(_json_each(source, path), f"LATERAL ({numbers})")


def json_text(source: str, *path: str | int) -> str:
    """Return the text of a field of a JSON value; an object or an array as JSON, NULL where there is none."""
    steps = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    *outer, last = [str(step) if isinstance(step, int) else f"'{step}'" for step in path]
    way = "".join(f" -> {step}" for step in outer)
    return either(f"json_extract({source}, '${steps}')", f"(({source})::jsonb{way} ->> {last})")


def json_int(source: str, *path: str | int) -> str:
    """Return a field of a JSON value that is a whole number."""
    text = json_text(source, *path)
    return either(text, f"CAST({text} AS bigint)")


def json_array_of(value: str) -> str:
    """Return the aggregate that makes one JSON array of the values of a group; ``[]`` of none."""
    return either(f"json_group_array({value})", f"coalesce(json_agg({value})::text, '[]')")


def greatest(*values: str) -> str:
    """Return the greatest of several values, none of which may be NULL: each database treats that in its own way."""
    return either(f"max({', '.join(values)})", f"greatest({', '.join(values)})")


def position_of(part: str, text: str) -> str:
    """Return where in ``text`` a part begins, from 1 on; 0 where it does not contain it."""
    return either(f"instr({text}, {part})", f"strpos({text}, {part})")


def days_between(earlier: str, later: str) -> str:
    """Return the days from one time to another, as a fraction."""
    seconds = f"extract(epoch FROM ({later})::timestamptz - ({earlier})::timestamptz)"
    return either(f"julianday({later}) - julianday({earlier})", f"CAST({seconds} / 86400.0 AS double precision)")


def blob(column: str) -> str:
    """Return a column of bytes; in a damaged SQLite file another type may be stored there, which counts as empty."""
    return either(f"CASE typeof({column}) WHEN 'blob' THEN {column} ELSE x'' END", column)


def unindexed(column: str) -> str:
    """Return a column that SQLite is to look up in no index; PostgreSQL decides by its statistics."""
    return either(f"+{column}", column)


def upsert(table: str, key: str, columns: Sequence[str]) -> str:
    """Return the INSERT of one row that replaces ``columns`` of the row with the same key."""
    names = (key, *columns)
    changes = ", ".join(f"{name} = excluded.{name}" for name in columns)
    return (
        f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join(['%s'] * len(names))}) "
        f"ON CONFLICT ({key}) DO UPDATE SET {changes}"
    )


def _json_each(source: str, path: Sequence[str]) -> str:
    return f"json_each({source}, '$.{'.'.join(path)}')" if path else f"json_each({source})"


def _inside(source: str, path: Sequence[str]) -> str:
    return f"({source})::jsonb" + "".join(f" -> '{step}'" for step in path)
