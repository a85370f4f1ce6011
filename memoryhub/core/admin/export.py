"""Downloads of what a list shows, row by row: CSV, JSON and Markdown."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder

from memoryhub.core.csv_lines import csv_lines, plain

FORMATS = {"csv": "text/csv", "json": "application/json", "md": "text/markdown"}
Rows = Iterable[Sequence[Any]]


def lines(form: str, names: Sequence[str], rows: Rows) -> Iterator[str]:
    """Yield the rows in a format of ``FORMATS``; ``names`` are those of the columns."""
    return {"csv": csv_lines, "json": _json, "md": _markdown}[form](names, rows)


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
        values = {name: plain(value) for name, value in zip(names, row, strict=True)}
        (number, title, *others) = values.items()
        fields = [f"- {name}: {value}" for name, value in others if value and "\n" not in value]
        texts = [f"### {name}\n\n{value}" for name, value in others if "\n" in value]
        yield "\n\n".join([f"## #{number[1]} {' '.join(title[1].split())}", "\n".join(fields), *texts]) + "\n\n"
