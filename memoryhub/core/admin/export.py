"""Downloads of what a list shows, row by row: CSV, JSON and Markdown."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder

FORMATS = {"csv": "text/csv", "json": "application/json", "md": "text/markdown"}
# Spreadsheets run a cell that begins with one of these
_FORMULA = ("=", "+", "-", "@", "\t", "\r")

Rows = Iterable[Sequence[Any]]


def lines(form: str, names: Sequence[str], rows: Rows) -> Iterator[str]:
    """Yield the rows in a format of ``FORMATS``; ``names`` are those of the columns."""
    return {"csv": _csv, "json": _json, "md": _markdown}[form](names, rows)


class _Line:
    def write(self, text: str) -> str:
        return text


def _csv(names: Sequence[str], rows: Rows) -> Iterator[str]:
    writer = csv.writer(_Line())
    yield writer.writerow(names)
    for row in rows:
        yield writer.writerow([_cell(value) for value in row])


def _cell(value: Any) -> Any:
    text = value if isinstance(value, str) else _plain(value)
    return f"'{text}" if isinstance(value, str) and text.startswith(_FORMULA) else text


def _plain(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, cls=DjangoJSONEncoder, ensure_ascii=False).strip('"')


def _json(names: Sequence[str], rows: Rows) -> Iterator[str]:
    separator = "[\n"
    for row in rows:
        item = dict(zip(names, row, strict=True))
        yield separator + json.dumps(item, cls=DjangoJSONEncoder, ensure_ascii=False)
        separator = ",\n"
    yield "\n]\n" if separator.startswith(",") else "[]\n"


# The number and the first text are the heading; texts of several lines follow the other fields
def _markdown(names: Sequence[str], rows: Rows) -> Iterator[str]:
    for row in rows:
        values = {name: _plain(value) for name, value in zip(names, row, strict=True)}
        (number, title, *others) = values.items()
        fields = [f"- {name}: {value}" for name, value in others if value and "\n" not in value]
        texts = [f"### {name}\n\n{value}" for name, value in others if "\n" in value]
        yield "\n\n".join([f"## #{number[1]} {' '.join(title[1].split())}", "\n".join(fields), *texts]) + "\n\n"
