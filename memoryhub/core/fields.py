"""Model fields of the stores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper

if TYPE_CHECKING:
    BigInteger = models.BigIntegerField[int, int]
else:
    BigInteger = models.BigIntegerField


class PositionField(BigInteger):
    """An event's place in its store's log, or the id of the entity which that event created.

    On SQLite the column is declared ``integer``, so that as a primary key it *is* the row id.
    """

    def db_type(self, connection: BaseDatabaseWrapper) -> str:
        """Return the column's type."""
        return "integer" if connection.vendor == "sqlite" else "bigint"

    def rel_db_type(self, connection: BaseDatabaseWrapper) -> str:
        """Return the type of a column that refers to this one."""
        return self.db_type(connection)
