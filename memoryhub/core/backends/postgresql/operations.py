"""Times and JSON as text, with SQLite's spelling: so both databases compare, sort and digest them alike."""

from __future__ import annotations

import json
from typing import Any

from django.db.backends.postgresql import operations
from django.db.models import Expression
from django.utils import timezone
from django.utils.dateparse import parse_datetime


class DatabaseOperations(operations.DatabaseOperations):
    # PostgreSQL's own inserts rows as arrays of each column's type, which no type with a collation has
    compiler_module = "django.db.models.sql.compiler"

    def integer_field_range(self, internal_type: str) -> tuple[int, int]:
        return (0 if internal_type.startswith("Positive") else -(2**63), 2**63 - 1)

    def adapt_datetimefield_value(self, value: Any) -> Any:
        if value is None or hasattr(value, "resolve_expression"):
            return value
        return str(timezone.make_naive(value, self.connection.timezone) if timezone.is_aware(value) else value)

    def adapt_json_value(self, value: Any, encoder: Any) -> str:
        return json.dumps(value, cls=encoder)

    def get_db_converters(self, expression: Expression) -> list[Any]:
        converters = super().get_db_converters(expression)
        if expression.output_field.get_internal_type() == "DateTimeField":
            converters.append(self._to_datetime)
        return converters

    def _to_datetime(self, value: Any, _expression: object, _connection: object) -> Any:
        if not isinstance(value, str):
            return value
        found = parse_datetime(value)
        return timezone.make_aware(found, self.connection.timezone) if found and timezone.is_naive(found) else found

    # Django casts times for its functions, such as ``__date`` and ``TruncDay``
    def _convert_sql_to_tz(self, sql: str, params: Any, tzname: str | None) -> tuple[str, Any]:
        moment = f"({sql})::timestamp AT TIME ZONE 'UTC'"
        if tzname:
            return f"{moment} AT TIME ZONE %s", (*params, self._prepare_tzname_delta(tzname))  # type: ignore[attr-defined]
        return moment, params
