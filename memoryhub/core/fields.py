from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper

if TYPE_CHECKING:
    BigInteger = models.BigIntegerField[int, int]
else:
    BigInteger = models.BigIntegerField


# A position in the store's log, which is also the id of the entity that the event created.
class PositionField(BigInteger):
    def db_type(self, connection: BaseDatabaseWrapper) -> str:
        # As a primary key, SQLite's ``integer`` is the row id itself.
        return "integer" if connection.vendor == "sqlite" else "bigint"
