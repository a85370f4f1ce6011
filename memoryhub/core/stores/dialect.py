"""SQL idioms that SQLite and PostgreSQL write differently (decision 41)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from django.db.models import F, Q, Value
from django.db.models.functions import StrIndex
from django.db.models.lookups import GreaterThan

# Control characters, which no statement contains: begin, separator of the two forms, end
_BEGIN, _BETWEEN, _END = "\x01", "\x02", "\x03"
_INNERMOST = re.compile(f"{_BEGIN}([^{_BEGIN}{_END}]*){_BETWEEN}([^{_BEGIN}{_END}]*){_END}")
_FORMS = {"sqlite": r"\1", "postgresql": r"\2"}


def either(sqlite: str, postgresql: str) -> str:
    return f"{_BEGIN}{sqlite}{_BETWEEN}{postgresql}{_END}"


def render(statement: str, vendor: str) -> str:
    while _BEGIN in statement:
        statement = _INNERMOST.sub(_FORMS[vendor], statement)
    return statement


def json_list(values: Iterable[Any]) -> str:
    """Return values as the one parameter of ``IDS``, ``TEXTS``, ``elements`` and ``int_elements``."""
    return json.dumps(list(values))


# The right side of IN with any number of values as one parameter: ``f"id IN {IDS}"`` with ``[json_list(ids)]``
IDS = either(
    "(SELECT value FROM json_each(%s))", "(SELECT CAST(value AS bigint) FROM jsonb_array_elements_text(%s::jsonb))"
)
TEXTS = either("(SELECT value FROM json_each(%s))", "(SELECT value FROM jsonb_array_elements_text(%s::jsonb))")


def is_among(column: str) -> str:
    """Return the condition that an indexed column has one of some hundred ids, with ``[json_list(ids)]``.

    PostgreSQL knows their number then, and looks them up; for ``IDS`` it would read all of a small table.
    """
    return either(
        f"{column} IN (SELECT value FROM json_each(%s))", f"{column} = ANY(translate(%s, '[]', '{{}}')::bigint[])"
    )


def elements(source: str = "%s", *path: str) -> str:
    """Return a FROM item with one row per element of a JSON array, in the column ``value``; it needs an alias."""
    return either(_json_each(source, path), f"jsonb_array_elements_text({_inside(source, path)})")


def int_elements(source: str = "%s", *path: str) -> str:
    """Like ``elements``, for an array of integers."""
    numbers = f"SELECT CAST(value AS bigint) AS value FROM jsonb_array_elements_text({_inside(source, path)})"
    return either(_json_each(source, path), f"LATERAL ({numbers})")


def entries(source: str = "%s", *path: str) -> str:
    """Return a FROM item with one row per entry of a JSON object: ``key`` and ``value``; it needs an alias."""
    return either(_json_each(source, path), f"jsonb_each_text({_inside(source, path)})")


def int_entries(source: str = "%s", *path: str) -> str:
    """Like ``entries``, for an object whose values are integers; keys are text."""
    numbers = f"SELECT key, CAST(value AS bigint) AS value FROM jsonb_each_text({_inside(source, path)})"
    return either(_json_each(source, path), f"LATERAL ({numbers})")


def json_text(source: str, *path: str | int) -> str:
    """Return a field of a JSON value as text; objects and arrays as JSON, NULL if it is missing."""
    steps = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    *outer, last = [str(step) if isinstance(step, int) else f"'{step}'" for step in path]
    way = "".join(f" -> {step}" for step in outer)
    return either(f"json_extract({source}, '${steps}')", f"(({source})::jsonb{way} ->> {last})")


def json_int(source: str, *path: str | int) -> str:
    text = json_text(source, *path)
    return either(text, f"CAST({text} AS bigint)")


def number_of(condition: str) -> str:
    """Return 1 for a true condition, 0 for a false one."""
    return either(f"({condition})", f"CAST(({condition}) AS integer)")


def json_array_of(value: str) -> str:
    return either(f"json_group_array({value})", f"coalesce(json_agg({value})::text, '[]')")


def json_length(source: str) -> str:
    """Return the number of elements of a JSON array."""
    return either(f"json_array_length({source})", f"jsonb_array_length(({source})::jsonb)")


def greatest(*values: str) -> str:
    """Return the greatest of several values; none may be NULL, which the databases treat differently."""
    return either(f"max({', '.join(values)})", f"greatest({', '.join(values)})")


def position_of(part: str, text: str) -> str:
    return either(f"instr({text}, {part})", f"strpos({text}, {part})")


def days_between(earlier: str, later: str) -> str:
    """Return the days between two times as a float, which is the same in both databases: it is exact to 1 ms."""
    seconds = f"extract(epoch FROM ({later})::timestamptz - ({earlier})::timestamptz)"
    milliseconds = either(
        f"round((julianday({later}) - julianday({earlier})) * 86400000.0)",
        f"CAST(round({seconds} * 1000) AS double precision)",
    )
    return f"{milliseconds} / 86400000.0"


def blob(column: str) -> str:
    """Return a column of bytes; another type in a damaged SQLite file counts as empty."""
    return either(f"CASE typeof({column}) WHEN 'blob' THEN {column} ELSE x'' END", column)


def unindexed(column: str) -> str:
    """Return a column for which SQLite must not use an index; PostgreSQL decides by its statistics."""
    return either(f"+{column}", column)


LINE_END = either("char(10)", "chr(10)")

# A join whose tables SQLite must read in the order in which they stand
ORDERED_JOIN = either("CROSS JOIN", "JOIN")

# Ignores the case of ASCII letters
LIKE = either("LIKE", "ILIKE")

# After LIMIT: all rows
NO_LIMIT = 2**62

# After a table: read it without its indexes, which a damaged SQLite file may lack rows in
NOT_INDEXED = either("NOT INDEXED", "")


def columns_of(row: str, names: Sequence[str]) -> str:
    """Return columns, qualified by the table or alias of their row."""
    return ", ".join(f"{row}.{name}" for name in names)


def _json_each(source: str, path: Sequence[str]) -> str:
    return f"json_each({source}, '$.{'.'.join(path)}')" if path else f"json_each({source})"


def _inside(source: str, path: Sequence[str]) -> str:
    return f"({source})::jsonb" + "".join(f" -> '{step}'" for step in path)


_LAST_CHARACTER = "\U0010ffff"


def begins_with(field: str, prefix: str) -> Q:
    """Return a filter that an index of the field answers."""
    return Q(**{f"{field}__gte": prefix, f"{field}__lt": prefix + _LAST_CHARACTER})


def has_part(field: str, part: str) -> GreaterThan:
    return GreaterThan(StrIndex(F(field), Value(part)), 0)
