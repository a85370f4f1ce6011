"""Whether a store's schema is what this version made."""

from __future__ import annotations

from django.db import DatabaseError, connections

from memoryhub.core.backends.postgresql.schemas import current_schema, quote
from memoryhub.core.backends.postgresql.structure import BETWEEN, LOG_TRIGGERS, statements_of, template_text
from memoryhub.core.stores import rows
from memoryhub.core.stores.routing import require_current_alias
from memoryhub.core.stores.store_id import StoreId

_SHOWN = 3
_TABLES = "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = to_regnamespace(%s) ORDER BY relname"
_TRIGGERS = (
    "SELECT tgname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid WHERE c.relnamespace = to_regnamespace(%s)"
)


def damage() -> str:
    try:
        for (table,) in rows.fetch(_TABLES, [_here()]):
            rows.fetch(f"SELECT count(*) FROM (SELECT t::text FROM {quote(table)} t) AS read")
    except DatabaseError as error:
        return f"the schema is damaged: {error}"[:500]
    return ""


def header_problem(_store: StoreId) -> str:
    return ""


def missing_log_triggers() -> list[str]:
    present = {name for (name,) in rows.fetch(_TRIGGERS, [_here()])}
    return sorted(set(LOG_TRIGGERS) - present)


def schema_problem() -> str:
    expected = _structure(template_text().split(BETWEEN))
    present = _structure(statements_of(connections[require_current_alias()], current_schema()))
    found = [
        *(f"{_named(text)} is missing or changed" for text in sorted(expected - present)),
        *(f"{_named(text)} was added or changed" for text in sorted(present - expected)),
    ]
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return f"the store's schema was changed: {', '.join(found[:_SHOWN])}{more}" if found else ""


def _structure(statements: list[str]) -> set[str]:
    return {
        text.strip()
        for text in statements
        if text.strip() and not text.startswith(("INSERT", "SELECT", "CREATE TRIGGER"))
    }


def _named(statement: str) -> str:
    return " ".join(statement.split()[:6])[:80]


def _here() -> str:
    return quote(current_schema())
