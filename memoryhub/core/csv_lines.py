"""Rows as CSV that a spreadsheet can open."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder

# Spreadsheets run a cell that begins with one of these
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


class _Line:
    def write(self, text: str) -> str:
        return text


def csv_lines(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """Yield the head and the rows; ``names`` are those of the columns."""
    writer = csv.writer(_Line())
    yield writer.writerow(names)
    for row in rows:
        yield writer.writerow([_cell(value) for value in row])


def _cell(value: Any) -> str:
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return plain(value)


def plain(value: Any) -> str:
    """Return a value as the text of a cell: JSON, but for texts and null."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return json.dumps(value, cls=DjangoJSONEncoder, ensure_ascii=False).strip('"')
