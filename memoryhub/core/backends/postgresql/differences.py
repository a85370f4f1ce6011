"""Which rows of a table differ between a store and its copy: found, recorded, copied, digested."""

from __future__ import annotations

from typing import Any

from django.db import models

from memoryhub.core.backends import differing
from memoryhub.core.backends.base import HERE, LIVE, Model
from memoryhub.core.backends.differing import Differing
from memoryhub.core.stores import rows

_OF_A_TABLE = "SELECT 1 FROM pg_class WHERE relname = %s AND relnamespace = quote_ident(current_schema())::regnamespace"


def record_differing(model: Model) -> bool:
    table = _differing(model)
    _watch(table)
    return table.find()


def recorded(model: Model, *, shown: int) -> tuple[int, tuple[str, ...]]:
    return _differing(model).recorded(shown=shown)


def apply_recorded(model: Model) -> None:
    table = _differing(model)
    keys = f"SELECT * FROM {table.records}"
    table.delete_outdated(keys)
    table.insert_missing(keys)


def _differing(model: Model) -> Differing:
    return Differing(model, database=HERE, equals="IS NOT DISTINCT FROM")


def _watch(table: Differing) -> None:
    """Create the table of differing keys, and triggers of the copy that fill it."""
    if rows.fetch(_OF_A_TABLE, [f"differing_{table.name}"]):
        return
    keys = ", ".join(table.key)
    rows.execute(f'CREATE TABLE {table.records} AS SELECT {keys} FROM {HERE}."{table.name}" WHERE false')
    notes = "".join(
        f"IF TG_OP IN ({operations}) THEN INSERT INTO {table.records} VALUES ({table.keys(row)}); END IF; "
        for operations, row in (("'UPDATE', 'DELETE'", "OLD"), ("'INSERT', 'UPDATE'", "NEW"))
    )
    function = f'{HERE}."note_{table.name}"'
    rows.execute(
        f"CREATE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {notes} RETURN NULL; END $$"
    )
    rows.execute(
        f'CREATE TRIGGER note_{table.name} AFTER INSERT OR UPDATE OR DELETE ON {HERE}."{table.name}" '
        f"FOR EACH ROW EXECUTE FUNCTION {function}()"
    )


def replace_table(table: str) -> None:
    if not rows.fetch(_OF_A_TABLE, [table]):
        return
    rows.execute(f'DELETE FROM {LIVE}."{table}"')
    rows.execute(f'INSERT INTO {LIVE}."{table}" SELECT * FROM {HERE}."{table}"')


def table_digest(model: Model, database: str) -> tuple[int, str]:
    return differing.table_digest(model, database, _texts)


def _texts(fields: list[Any]) -> str:
    texts = map(_text, fields)
    return " || ".join(f"coalesce(octet_length({text}) || ':' || {text}, '-')" for text in texts)


# The same text as in SQLite
def _text(field: models.Field[Any, Any]) -> str:
    if isinstance(field, models.BooleanField):
        return f'"{field.column}"::int::text'
    if isinstance(field, models.BinaryField):
        return f"convert_from(\"{field.column}\", 'UTF8')"
    return f'"{field.column}"::text'
