"""The statements that are sent while histories are written and read, and whether PostgreSQL can plan them."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from django.db import DatabaseError, connections, transaction

from memoryhub.core.backends.sqlite.base import DatabaseWrapper
from memoryhub.core.stores.routing import require_current_alias

# Modules whose statements are SQLite's alone, and names in statements to which SQLite's backend has added a part
SQLITE_ONLY = ("memoryhub.core.backends.sqlite.", "memories.search.fts5")
_MARKS = re.compile(r"%s(?:, %s)+")
_OF_SQLITE = ("search_fts", 'temp."differing_', " AS BLOB) FROM ")
_BETWEEN = frozenset(
    {"memoryhub.core.backends.sqlite.base", "memoryhub.core.stores.rows", "memoryhub.core.stores.gathered", __name__}
)


@dataclass
class Sent:
    """A statement as the code has it, with the parameters of one execution."""

    sql: str
    parameters: Sequence[Any]
    # That sent it
    module: str

    @property
    def is_portable(self) -> bool:
        return not (self.module.startswith(SQLITE_ONLY) or any(name in self.sql for name in _OF_SQLITE))


@contextmanager
def recorded() -> Iterator[dict[str, Sent]]:
    """Record the forms of statements that are run in SQLite inside the block: lists of any length are one form."""
    found: dict[str, Sent] = {}

    def recording(method: Callable[..., Any], row_of: Callable[[Any], Any]) -> Callable[..., Any]:
        def run(self: DatabaseWrapper, sql: str, parameters: Any) -> Any:
            form = _MARKS.sub("%s", sql)
            if form not in found or not found[form].is_portable:
                found[form] = Sent(sql, row_of(parameters), _sender())
            return method(self, sql, parameters)

        return run

    with (
        mock.patch.object(DatabaseWrapper, "run", recording(DatabaseWrapper.run, lambda row: row)),
        mock.patch.object(DatabaseWrapper, "_run_many", recording(DatabaseWrapper._run_many, lambda rows: rows[0])),
    ):
        yield found


def _sender() -> str:
    frame = sys._getframe(2)
    while frame.f_back and frame.f_globals["__name__"] in _BETWEEN:
        frame = frame.f_back
    return str(frame.f_globals["__name__"])


def problems(statements: Sequence[Sent]) -> list[str]:
    """Plan statements in the current store, which is in PostgreSQL; return those that it refuses, with its reason."""
    connection: Any = connections[require_current_alias()]
    with mock.patch.object(connection, "attached", connection.settings_dict["SCHEMA"]):
        return [problem for sent in statements if (problem := _problem(connection, sent))]


def _problem(connection: Any, sent: Sent) -> str:
    try:
        with transaction.atomic(using=connection.alias):
            connection.run(f"EXPLAIN {sent.sql}", sent.parameters)
    except DatabaseError as error:
        return f"{sent.module}: {error}: {sent.sql}"
    return ""
