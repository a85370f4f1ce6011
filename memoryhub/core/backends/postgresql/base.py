"""Django's backend for stores as schemas: transactions that take a store's lock, and SQLite's spelling of values."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import cache, lru_cache
from typing import Any

from django.db.backends.postgresql import base, features, operations
from django.db.models import Expression
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from memoryhub.core.backends.base import HERE, LIVE
from memoryhub.core.backends.postgresql.locations import lock_of, quote
from memoryhub.core.backends.postgresql.options import BUSY_TIMEOUT_SECONDS
from memoryhub.core.backends.postgresql.pool import PooledSession
from memoryhub.core.stores.dialect import render
from memoryhub.core.stores.rows import Gathered, Query, Row


class DatabaseOperations(operations.DatabaseOperations):
    # PostgreSQL's own inserts rows as arrays of each column's type, which no type with a collation has
    compiler_module = "django.db.models.sql.compiler"

    def integer_field_range(self, internal_type: str) -> tuple[int, int]:
        lowest = 0 if internal_type.startswith("Positive") else -(2**63)
        return lowest, 2**63 - 1

    def adapt_datetimefield_value(self, value: Any) -> Any:
        if value is None or hasattr(value, "resolve_expression"):
            return value
        if timezone.is_aware(value):
            value = timezone.make_naive(value, self.connection.timezone)
        return str(value)

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
        moment = parse_datetime(value)
        if moment and timezone.is_naive(moment):
            return timezone.make_aware(moment, self.connection.timezone)
        return moment

    # Django casts times for its functions, such as ``__date`` and ``TruncDay``
    def _convert_sql_to_tz(self, sql: str, params: Any, tzname: str | None) -> tuple[str, Any]:
        moment = f"({sql})::timestamp AT TIME ZONE 'UTC'"
        if tzname:
            return f"{moment} AT TIME ZONE %s", (*params, self._prepare_tzname_delta(tzname))  # type: ignore[attr-defined]
        return moment, params


# The same order and the same text on every server, as in SQLite
_TEXT = 'text COLLATE "C"'
_KINDS = {
    **dict.fromkeys(("CharField", "DateTimeField", "JSONField", "SlugField", "TextField"), _TEXT),
    # SQLite's integers have 64 bits
    **dict.fromkeys(
        ("IntegerField", "PositiveIntegerField", "PositiveSmallIntegerField", "SmallIntegerField"), "bigint"
    ),
}
_ROWS = re.compile(r"\bVALUES\s*(\((?:[^()]|\([^()]*\))*\))", re.IGNORECASE)
_QUOTED = r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\""
_LITERAL = re.compile(rf"{_QUOTED}|(?<![\w.$])(?P<float>\d+\.\d+(?:e[+-]?\d+)?)(?![\w.]|::)")
_NO_MARK = re.compile(r"%(?!s)")
_DATABASE = re.compile(rf"{_QUOTED}|\b({HERE}|{LIVE})\.(?=[\"a-z])")

# URLs whose server's version is supported
_servers_of_known_version: set[str] = set()


class DatabaseFeatures(features.DatabaseFeatures):
    has_native_json_field = False


class PostgreSQLConnection(base.DatabaseWrapper):
    gathered: Gathered | None = None
    data_types = {**base.DatabaseWrapper.data_types, **_KINDS}
    features_class = DatabaseFeatures
    ops_class = DatabaseOperations

    # The schema of the store attached to this one, and whether its lock is taken too
    attached: str = ""
    locks_attached = False
    # Refuse writes
    read_only = False

    def get_connection_params(self) -> dict[str, Any]:
        return {}

    def get_new_connection(self, conn_params: dict[str, Any]) -> PooledSession:
        return PooledSession(self.settings_dict["URL"], self._preamble, self._beginning)

    def init_connection_state(self) -> None:
        if self.settings_dict["URL"] not in _servers_of_known_version:
            self.check_database_version_supported()
            _servers_of_known_version.add(self.settings_dict["URL"])

    def ensure_timezone(self) -> bool:
        return False

    def is_usable(self) -> bool:
        return True

    def _set_autocommit(self, autocommit: bool) -> None:  # noqa: FBT001 - as in Django
        with self.wrap_database_errors:
            self.connection.autocommit = autocommit

    def create_cursor(self, name: str | None = None) -> Any:
        if self.gathered is not None:
            self.gathered.insert_all()
        return self.connection.cursor()

    def _preamble(self) -> str:
        return _preamble(self.settings_dict["SCHEMA"], self.settings_dict["ROLE"], read_only=self.read_only)

    def _beginning(self) -> str:
        # What is compared with an attached store is compared with one moment of it
        is_moment = self.read_only or (self.attached and not self.locks_attached)
        isolation = " ISOLATION LEVEL REPEATABLE READ" if is_moment else ""
        return f"BEGIN{isolation}; {self._preamble()}{self._locks()}"

    def _locks(self) -> str:
        if self.read_only:
            return ""
        schemas = [self.settings_dict["SCHEMA"]]
        if self.locks_attached:
            schemas.append(self.attached)
        return "".join(f"SELECT pg_advisory_xact_lock({lock_of(schema)}); " for schema in sorted(schemas))

    def run_many(self, sql: str, rows: list[Row]) -> None:
        """Insert rows with one statement, or with one each, but sent together, if they may concern the same row."""
        text = self._rendered(sql)
        with self.wrap_database_errors:
            mogrify = self.connection.connection.cursor().mogrify
            if "ON CONFLICT" in text:
                self.connection.execute("; ".join(mogrify(text, row) for row in rows))
                return
            values_list = _ROWS.search(text)
            if values_list is None:
                raise ValueError(f"not an INSERT of one row: {text}")
            values = ", ".join(mogrify(values_list[1], row) for row in rows)
            before = text[: values_list.start(1)].replace("%%", "%")
            after = text[values_list.end(1) :].replace("%%", "%")
            self.connection.execute(before + values + after)

    def run(self, sql: str, parameters: Sequence[Any]) -> Any:
        """Run one statement and return psycopg's cursor, which has its rows."""
        self.ensure_connection()
        if self.gathered is not None:
            self.gathered.insert_named_in(sql)
        with self.wrap_database_errors:
            return self.connection.execute(self._rendered(sql), parameters)

    def fetch_together(self, queries: Sequence[Query]) -> list[list[tuple[Any, ...]]]:
        self.ensure_connection()
        if self.gathered is not None:
            for sql, _ in queries:
                self.gathered.insert_named_in(sql)
        with self.wrap_database_errors:
            session: PooledSession = self.connection
            return session.fetch_together([(self._rendered(sql), parameters) for sql, parameters in queries])

    def batches(self, sql: str, parameters: Sequence[Any], size: int) -> Iterator[list[tuple[Any, ...]]]:
        # Outside a transaction, over a connection of its own: other statements may run meanwhile
        self.ensure_connection()
        if self.gathered is not None:
            self.gathered.insert_named_in(sql)
        with ExitStack() as stack:
            with self.wrap_database_errors:
                session = self.connection
                if session.autocommit:
                    session = stack.enter_context(self._reading())
                fetch = session.declare(self._rendered(sql), parameters, size)
            while batch := self._fetched(fetch):
                yield batch

    @contextmanager
    def _reading(self) -> Iterator[PooledSession]:
        begin = f"BEGIN READ ONLY; {self._preamble()}"
        with closing(PooledSession(self.settings_dict["URL"], self._preamble, lambda: begin)) as session:
            session.begin()
            yield session

    def _fetched(self, fetch: Callable[[], list[tuple[Any, ...]]]) -> list[tuple[Any, ...]]:
        with self.wrap_database_errors:
            return fetch()

    def run_unrestricted(self, sql: str, parameters: Sequence[Any]) -> Any:
        """Run a statement in this transaction as the role that connects, rather than as the store's."""
        if not self.settings_dict["ROLE"]:
            return self.run(sql, parameters)
        cursor = self.run(f"SET LOCAL ROLE NONE; {sql}", parameters)
        self.run(f"SET LOCAL ROLE {quote(self.settings_dict['ROLE'])}", ())
        return cursor

    def _rendered(self, sql: str) -> str:
        text = _as_postgresql(sql)
        if f"{HERE}." in text or f"{LIVE}." in text:
            return _with_schemas(text, self.settings_dict["SCHEMA"], self.attached)
        return text

    def has_table(self, name: str) -> bool:
        table = f"{quote(self.settings_dict['SCHEMA'])}.{quote(name)}"
        return bool(self.run("SELECT to_regclass(%s) IS NOT NULL", [table]).fetchone()[0])

    def has_module(self, name: str) -> bool:
        return name == "postings"

    def interrupt(self) -> None:
        session = self.connection
        if session is not None:
            session.cancel()


# The name by which Django finds a backend
DatabaseWrapper = PostgreSQLConnection


@lru_cache(maxsize=1024)
def _preamble(schema: str, role: str, *, read_only: bool) -> str:
    parts = [
        f"SET LOCAL search_path TO {quote(schema)}",
        f"SET LOCAL lock_timeout TO {int(BUSY_TIMEOUT_SECONDS * 1000)}",
    ]
    if role:
        parts.append(f"SET LOCAL ROLE {quote(role)}")
    if read_only:
        parts.append("SET LOCAL transaction_read_only TO on")
    return "".join(f"{part}; " for part in parts)


# PostgreSQL reads a literal such as 0.5 as a decimal, whose arithmetic rounds otherwise than that of floats
@cache
def _as_postgresql(sql: str) -> str:
    text = _NO_MARK.sub("%%", render(sql, "postgresql"))
    return _LITERAL.sub(lambda match: f"{match['float']}::float8" if match["float"] else match[0], text)


@lru_cache(maxsize=2048)
def _with_schemas(text: str, here: str, live: str) -> str:
    names = {HERE: here, LIVE: live}
    return _DATABASE.sub(lambda match: f"{quote(names[match[1]])}." if match[1] else match[0], text)
