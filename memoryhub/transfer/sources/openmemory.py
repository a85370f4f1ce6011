"""The export of OpenMemory, Mem0's server for one person, which was closed in 2026.

It is a ZIP file with ``memories.jsonl.gz``, a line for each memory, and ``memories.json``, the tables of its database.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from memoryhub.core.errors import Invalid
from memoryhub.core.foreign_files import open_foreign
from memoryhub.core.text import flat
from memoryhub.transfer.sources.reading import (
    MAX_FILE,
    dict_or_empty,
    list_or_empty,
    parse_json,
    read_head,
    read_packed,
    text_of,
    unpacked,
)

_LINES, _TABLES = "memories.jsonl.gz", "memories.json"
_ZIP = b"PK\x03\x04"


def is_export(path: Path) -> bool:
    """Return whether a file is such an export, or its lines."""
    return read_head(path, len(_ZIP)) == _ZIP or path.name.endswith((".jsonl", ".jsonl.gz"))


def export_items(path: Path) -> list[Any]:
    """Return the memories of an export as Mem0's ``get_all()`` has them.

    Raises:
        Invalid: it cannot be read, or is no such export.
    """
    if read_head(path, len(_ZIP)) != _ZIP:
        return list(map(_item, _lines(read_packed(path))))
    name, raw = _member(path)
    if name.endswith(_LINES):
        return list(map(_item, _lines(unpacked(raw, path))))
    return items_of_tables(dict_or_empty(parse_json(raw, path)))


def items_of_tables(data: Mapping[str, Any]) -> list[Any]:
    """Return the memories of ``memories.json``, with the names of their categories and of the app that wrote them."""
    names: dict[str, str] = {}
    for table in ("apps", "categories"):
        for row in map(dict_or_empty, list_or_empty(data.get(table))):
            names[text_of(row.get("id"))] = text_of(row.get("name"))
    items = []
    for row in map(dict_or_empty, list_or_empty(data.get("memories"))):
        categories = [names.get(text_of(category), "") for category in list_or_empty(row.get("category_ids"))]
        items.append(_item({**row, "app": names.get(text_of(row.get("app_id")), ""), "categories": categories}))
    return items


def _item(row: Any) -> Any:
    fields = dict_or_empty(row)
    return {**fields, "memory": fields.get("content"), "agent_id": fields.get("app"), "user_id": None, "app_id": None}


def _lines(raw: bytes) -> Iterator[Any]:
    for line in raw.splitlines():
        if line.strip():
            try:
                yield json.loads(line)
            except (ValueError, RecursionError):
                yield None


def _member(path: Path) -> tuple[str, bytes]:
    try:
        with os.fdopen(open_foreign(path), "rb") as file, zipfile.ZipFile(io.BytesIO(file.read(MAX_FILE))) as archive:
            for name in (_LINES, _TABLES):
                for member in archive.infolist():
                    if member.filename.rpartition("/")[2] == name:
                        return name, _content(archive, member, path)
    except (OSError, EOFError, ValueError, RuntimeError, NotImplementedError, zipfile.BadZipFile, zlib.error) as error:
        raise Invalid(f"{flat(str(path))} is damaged, or locked with a password") from error
    raise Invalid(f"{flat(str(path))} is no export of OpenMemory: it has no {_LINES} and no {_TABLES}")


def _content(archive: zipfile.ZipFile, member: zipfile.ZipInfo, path: Path) -> bytes:
    with archive.open(member) as file:
        raw = file.read(MAX_FILE + 1)
    if len(raw) > MAX_FILE:
        raise Invalid(f"{flat(str(path))} unpacks to more than {MAX_FILE // 2**20} MB")
    return raw
