"""The memories of mcp-memory-service, from its SQLite database or its export."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from memoryhub.core.errors import Invalid
from memoryhub.core.text import first_line, flat
from memoryhub.transfer.records import ImportSource, LeftOutRecord, MemoryRecord, Record
from memoryhub.transfer.sources.databases import Database, open_database
from memoryhub.transfer.sources.reading import ToolExport, dict_or_empty, file_in, is_json, text_of, time_of
from memoryhub.transfer.sources.texts import clean_tags, own_relation

_TOOL = "mcp-memory-service"
_FILE = "sqlite_vec.db"
_REQUIRED = ("content_hash", "content", "tags", "memory_type")
_COLUMNS = (*_REQUIRED, "metadata", "created_at", "updated_at", "deleted_at", "superseded_by")
_GRAPH = ("source_hash", "target_hash", "relationship_type")
# Its types by kind and type here; any other is a note with the type as a tag
_KINDS = {
    "decision": ("knowledge", "decision"),
    "reference": ("knowledge", "reference"),
    "task": ("observation", "task"),
    "note": ("observation", "note"),
    "observation": ("observation", "note"),
    "conversation": ("observation", "conversation"),
}


def _find_service(_: Path) -> list[Path]:
    home = Path.home()
    configured = os.environ.get("MCP_MEMORY_SQLITE_PATH") or os.environ.get("MCP_MEMORY_SQLITEVEC_PATH")
    if configured:
        places = [Path(configured)]
    else:
        places = [home / ".local/share/mcp-memory" / _FILE, home / "Library/Application Support/mcp-memory" / _FILE]
    return list(filter(Path.is_file, places))


def _read_service(path: Path) -> Iterator[Record]:
    if is_json(path):
        yield from _export(path)
        return
    path = file_in(path, _FILE)
    with open_database(path, _TOOL, {"memories": _REQUIRED}, optional=["memory_graph"]) as database:
        relations = _relations(database)
        for row in database.rows("memories", _COLUMNS):
            yield _memory_record(row, relations, path)
        yield LeftOutRecord(str(path), "vectors, which are made again")


def _export(path: Path) -> Iterator[Record]:
    export = ToolExport(path, {"memories": "memories"}, _TOOL)
    rows = [_memory_row(row) for row in export.rows("memories", (*_COLUMNS, "type", "tags_str"))]
    if not any(row["content"] for row in rows):
        raise Invalid(f"{flat(str(path))} is no export of {_TOOL}: its memories have no content")
    yield from (_memory_record(row, {}, path) for row in rows)
    if export.left_out:
        yield LeftOutRecord(str(path), f"entries that are no memories: {export.left_out}")


# As the database has it
def _memory_row(row: dict[str, Any]) -> dict[str, Any]:
    tags = row["tags"] or row["tags_str"]
    if isinstance(tags, list):
        tags = ",".join(tag for tag in tags if isinstance(tag, str))
    content = text_of(row["content"])
    key = text_of(row["content_hash"])
    if content and not key:
        key = sha256(content.encode("utf-8", "replace")).hexdigest()
    metadata = row["metadata"]
    if isinstance(metadata, dict):
        metadata = json.dumps(metadata)
    kind = row["memory_type"] or row["type"]
    return {**row, "content_hash": key, "tags": tags, "metadata": metadata, "memory_type": kind}


def _relations(database: Database) -> dict[str, list[tuple[str, str]]]:
    relations: dict[str, list[tuple[str, str]]] = {}
    if "memory_graph" in database.columns:
        for row in database.rows("memory_graph", _GRAPH):
            relation = own_relation(text_of(row["relationship_type"]) or "related")
            relations.setdefault(text_of(row["source_hash"]), []).append((relation, text_of(row["target_hash"])))
    return relations


def _memory_record(row: Mapping[str, Any], relations: Mapping[str, list[tuple[str, str]]], path: Path) -> Record:
    key = text_of(row["content_hash"])
    content = text_of(row["content"])
    place = f"{path}:{key[:12]}"
    if row["deleted_at"] is not None:
        return LeftOutRecord(place, "it was deleted there")
    if text_of(row["superseded_by"]):
        return LeftOutRecord(place, "a newer memory supersedes it there")
    if not key or not content.strip():
        return LeftOutRecord(place, "it has no hash, or no text that can be read")
    type_name = text_of(row["memory_type"]).strip().lower()
    kind, type_ = _KINDS.get(type_name, ("observation", "note"))
    tags = [tag for tag in text_of(row["tags"]).split(",") if tag.strip() != "untagged"]
    if type_name not in _KINDS:
        tags.append(type_name)
    return MemoryRecord(
        key=key,
        title=first_line(content, 120),
        content=content,
        kind=kind,
        type=type_,
        tags=clean_tags(tags),
        project=_project(row["metadata"]),
        created=time_of(row["created_at"]),
        updated=time_of(row["updated_at"]),
        relations=tuple(relations.get(key, ())),
        place=place,
    )


# Clients may name one; the tool itself has none
def _project(metadata: object) -> str:
    try:
        fields = dict_or_empty(json.loads(text_of(metadata) or "{}"))
    except (ValueError, RecursionError):
        return ""
    return text_of(fields.get("project"))


MCP_MEMORY_SERVICE = ImportSource(
    _TOOL,
    "the memories of mcp-memory-service",
    _find_service,
    _read_service,
    takes="its sqlite_vec.db, which is in ~/.local/share/mcp-memory or MCP_MEMORY_SQLITE_PATH, or its JSON export",
)
