"""The memories of Mem0: its history, what ``get_all()`` returns as JSON, or the export of OpenMemory."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from memoryhub.config.repository import is_folder, resolved
from memoryhub.core.errors import Invalid
from memoryhub.core.text import flat
from memoryhub.transfer.records import ImportSource, LeftOutRecord, MemoryRecord, Record
from memoryhub.transfer.sources.databases import Database, open_database
from memoryhub.transfer.sources.openmemory import export_items, is_export, items_of_tables
from memoryhub.transfer.sources.reading import described, dict_or_empty, is_sqlite, read_json, text_of, time_of
from memoryhub.transfer.sources.texts import clean_tags, texts

_TOOL = "Mem0"
_HISTORY = "history.db"
# The vectors of Qdrant's local mode, which Mem0 uses unless it is set up otherwise
_VECTORS = ("storage.sqlite", "collection/*/storage.sqlite", "*/collection/*/storage.sqlite")
_PICKLED = "its rows are pickled Python objects, which can run code; import history.db or the JSON of get_all()"
_EVENTS = ("ADD", "UPDATE", "DELETE")
# States of OpenMemory
_PUT_AWAY = ("deleted", "archived")
_TIMES = ("created_at", "updated_at")
_REQUIRED = ("memory_id", "new_memory", "event")


def _find_mem0(_: Path) -> list[Path]:
    path = Path(os.environ.get("MEM0_DIR") or Path.home() / ".mem0") / _HISTORY
    return list(filter(Path.is_file, [path]))


def _read_mem0(path: Path) -> Iterator[Record]:
    place = resolved(path)
    if is_folder(place):
        yield from _read_folder(place)
    elif place.name == "storage.sqlite" and is_sqlite(place):
        yield LeftOutRecord(str(place), _PICKLED)
    elif is_sqlite(place):
        with open_database(place, _TOOL, {"history": _REQUIRED}, optional=["messages"]) as database:
            yield from _history(database, place)
    else:
        yield from _export(place)


def _read_folder(folder: Path) -> Iterator[Record]:
    vectors = sorted(path for pattern in _VECTORS for path in folder.glob(pattern))
    history = folder / _HISTORY
    if not vectors and not history.is_file():
        raise Invalid(f"{flat(str(folder))} has no {_HISTORY} of Mem0; name that file, or the JSON of get_all()")
    yield from (LeftOutRecord(str(path), _PICKLED) for path in vectors)
    if history.is_symlink():
        yield LeftOutRecord(str(history), "a link, which may lead out of the folder")
    elif history.is_file():
        yield from _read_mem0(history)


def _history(database: Database, path: Path) -> Iterator[Record]:
    newest: dict[Any, int] = {}
    for number, row in enumerate(database.rows("history", ["memory_id", "event"])):
        if row["event"] in _EVENTS:
            newest[row["memory_id"]] = number
    columns = (*_REQUIRED, *_TIMES, "is_deleted")
    for number, row in enumerate(database.rows("history", columns)):
        if newest.get(row["memory_id"]) == number:
            yield _history_record(row, f"{path}:{text_of(row['memory_id'])}")
    if "messages" in database.columns:
        messages = sum(1 for _ in database.rows("messages", ["id"]))
        if messages:
            yield LeftOutRecord(str(path), f"messages that memories were taken from: {messages}")


def _history_record(row: Mapping[str, Any], place: str) -> Record:
    key = text_of(row["memory_id"])
    text = text_of(row["new_memory"])
    if row["event"] == "DELETE" or row["is_deleted"]:
        return LeftOutRecord(place, "it was deleted there")
    if not key or not text.strip():
        return LeftOutRecord(place, "it has no id, or no text that can be read")
    created, updated = map(time_of, map(row.get, _TIMES))
    return MemoryRecord(key=key, title="", content=text, created=created, updated=updated, place=place)


def _export(path: Path) -> Iterator[Record]:
    data = export_items(path) if is_export(path) else read_json(path)
    if isinstance(data, dict) and "export_meta" in data:
        data = items_of_tables(data)
    named = data if isinstance(data, dict) else {"results": data}
    items, relations = named.get("results", named.get("memories")), named.get("relations")
    if not isinstance(items, list):
        raise Invalid(f"{flat(str(path))} is no JSON of Mem0: it has no list of results, but {described(data)}")
    present = [item for item in items if dict_or_empty(item).get("state") not in _PUT_AWAY]
    if len(present) < len(items):
        why = f"memories that were deleted or archived there: {len(items) - len(present)}"
        yield LeftOutRecord(str(path), why)
        items = present
    records = {record.key: record for item in items if (record := _item_record(item, path))}
    if items and not records:
        raise Invalid(f"{flat(str(path))} is no JSON of Mem0: its entries have no id and memory")
    yield from records.values()
    if len(records) < len(items):
        yield LeftOutRecord(
            str(path), f"entries that have no id and memory, or the id of another: {len(items) - len(records)}"
        )
    if isinstance(relations, list) and relations:
        yield LeftOutRecord(str(path), f"relations of its graph: {len(relations)}")


def _item_record(item: Any, path: Path) -> MemoryRecord | None:
    match item:
        case {"id": str(key), "memory": str(text)} if key and text.strip():
            metadata = dict_or_empty(item.get("metadata"))
            tags = [item.get("user_id"), item.get("agent_id"), *_categories(item), *_categories(metadata)]
            return MemoryRecord(
                key=key,
                title="",
                content=text,
                tags=clean_tags([tag for tag in tags if isinstance(tag, str)]),
                project=text_of(item.get("app_id")) or text_of(metadata.get("project")),
                session=text_of(item.get("run_id")),
                created=time_of(item.get("created_at")),
                updated=time_of(item.get("updated_at")),
                place=f"{path}:{key}",
            )
    return None


def _categories(fields: Mapping[str, Any]) -> list[str]:
    return [text for name in ("category", "categories", "tags") for text in texts(fields.get(name))]


MEM0 = ImportSource(
    "mem0",
    "the memories of Mem0 and OpenMemory: history.db, the JSON of get_all(), or OpenMemory's export",
    _find_mem0,
    _read_mem0,
    takes="~/.mem0/history.db, a JSON file with the `results` or `memories` of get_all(), or OpenMemory's ZIP file",
)
