"""Parts of texts with their case: Django's ``contains`` and ``startswith`` ignore that of ASCII letters in SQLite."""

from __future__ import annotations

from django.db.models import F, Q, Value
from django.db.models.functions import StrIndex
from django.db.models.lookups import GreaterThan

_LAST_CHARACTER = "\U0010ffff"


def begins_with(field: str, prefix: str) -> Q:
    """Return a filter that an index of the field answers."""
    return Q(**{f"{field}__gte": prefix, f"{field}__lt": prefix + _LAST_CHARACTER})


def has_part(field: str, part: str) -> GreaterThan:
    return GreaterThan(StrIndex(F(field), Value(part)), 0)
