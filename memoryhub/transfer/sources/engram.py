"""The observations, sessions and prompts of engram: its database, its export, and what a repository shares."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from memoryhub.core.errors import Invalid
from memoryhub.core.text import first_line, flat
from memoryhub.transfer.records import ImportSource, LeftOutRecord, MemoryRecord, Record, SessionRecord
from memoryhub.transfer.sources.databases import Database, Row, joined, open_database
from memoryhub.transfer.sources.reading import ToolExport, file_in, is_sqlite, text_of, time_of
from memoryhub.transfer.sources.texts import repository_around
from sessions_app.services.past_sessions import PastTurn

_TOOL = "engram"
_FILE = "engram.db"
# What it shares over git, in a repository
_FOLDER, _MANIFEST, _CHUNKS = ".engram", "manifest.json", "chunks"
_SESSION = ("id", "project", "started_at", "ended_at", "summary")
_TIMES = ("created_at", "updated_at")
_IDS = ("id", "sync_id", "session_id")
_OBSERVATION = (*_IDS, "type", "title", "content", "project", "scope", "topic_key", *_TIMES, "deleted_at")
_PROMPT = ("id", "session_id", "content", "created_at")
_TABLES = {
    "sessions": _SESSION[:2],
    "observations": ("id", "session_id", "type", "title", "content"),
    "user_prompts": _PROMPT,
}
_LISTS = {"sessions": "sessions", "observations": "observations", "user_prompts": "prompts"}
# Columns by which rows of several machines differ
_IDENTITIES = {
    "sessions": ("id",),
    "observations": ("sync_id", "id", "created_at"),
    "user_prompts": ("session_id", "id", "created_at"),
}
_PRIVATE = re.compile(r"<private>.*?(?:</private>|\Z)", re.DOTALL | re.IGNORECASE)
# Its types by kind and type here; any other is a note with the type as a tag
_KINDS = {
    "decision": ("knowledge", "decision"),
    "architecture": ("knowledge", "decision"),
    "config": ("knowledge", "context"),
    "discovery": ("knowledge", "fact"),
    "learning": ("knowledge", "fact"),
    "preference": ("guideline", ""),
    "manual": ("observation", "note"),
}
# Recorded while a client worked, and not meant to be remembered
_NOISE = ("tool_use", "file_change", "command", "file_read", "search")


def _find_engram(folder: Path) -> list[Path]:
    data = Path(os.environ.get("ENGRAM_DATA_DIR") or Path.home() / ".engram")
    shared = [top / _FOLDER for top in repository_around(folder) if (top / _FOLDER / _MANIFEST).is_file()]
    return [*filter(Path.is_file, [data / _FILE]), *shared]


def _read_engram(path: Path) -> Iterator[Record]:
    if path.is_dir():
        yield from _read_folder(path)
    elif path.name == _MANIFEST:
        yield from _shared_chunks(path.parent / _CHUNKS)
    elif path.suffix == ".gz":
        yield from _shared(ToolExport(path, _LISTS, _TOOL), path)
    elif path.is_file() and not is_sqlite(path):
        yield from _lists(ToolExport(path, _LISTS, _TOOL), path)
    else:
        yield from _database(path)


def _read_folder(path: Path) -> Iterator[Record]:
    chunks = [path / name for name in (f"{_FOLDER}/{_CHUNKS}", _CHUNKS) if (path / name).is_dir()]
    if path.name == _CHUNKS and not chunks:
        chunks = [path]
    if (path / _FILE).is_file() or not chunks:
        yield from _database(file_in(path, _FILE))
    else:
        yield from _shared_chunks(chunks[0])


# What it shares over git: each file has the rows that were new when it was made
def _shared_chunks(folder: Path) -> Iterator[Record]:
    paths = sorted(folder.glob("*.jsonl.gz"))
    if not paths:
        raise Invalid(f"{flat(str(folder))} has no {_TOOL} chunks (*.jsonl.gz)")
    exports: list[ToolExport] = []
    for path in paths:
        try:
            exports.append(ToolExport(path, _LISTS, _TOOL))
        except Invalid as error:
            yield LeftOutRecord(str(path), error.message)
    if exports:
        yield from _shared(exports[0].joined(exports[1:]), folder)


def _shared(export: ToolExport, path: Path) -> Iterator[Record]:
    for table, names in _IDENTITIES.items():
        export.keep_newest(table, names, by=("updated_at", "ended_at"))
    for record in _lists(export, path):
        if isinstance(record, MemoryRecord) and record.key.isdecimal() and record.created:
            # Each machine counts its rows from 1
            yield replace(record, key=f"{record.key}@{record.created:%Y-%m-%dT%H:%M:%S}")
        else:
            yield record


def _database(path: Path) -> Iterator[Record]:
    with open_database(path, _TOOL, _TABLES) as database:
        yield from _database_rows(database, path)


def _lists(export: ToolExport, path: Path) -> Iterator[Record]:
    export.add_missing("sessions", "id", of=("user_prompts", "session_id"), also=("project",))
    yield from _database_rows(export, path)
    if export.left_out:
        yield LeftOutRecord(str(path), f"entries that are no rows: {export.left_out}")


def _database_rows(source: Database | ToolExport, path: Path) -> Iterator[Record]:
    prompts = source.rows("user_prompts", _PROMPT, order="session_id, id")
    sessions = source.rows("sessions", _SESSION, order="id")
    for row, group in joined(sessions, prompts, "id", "session_id"):
        place = f"{path}: session {text_of(row['id'])}"
        yield _session_record(row, group.rows, place)
        yield from group.left_out(place)
    for row in source.rows("observations", _OBSERVATION):
        yield _observation(row, path)


def _session_record(row: Row, prompts: list[Row], place: str) -> Record:
    summary = _without_private(row["summary"])
    turns = []
    for prompt in prompts:  # it keeps prompts without their answers
        turns.append(PastTurn(_without_private(prompt["content"]), "", time_of(prompt["created_at"])))
    return SessionRecord(
        key=text_of(row["id"]),
        purpose=first_line(turns[0].prompt if turns else summary, 200),
        turns=tuple(turns),
        summary=summary,
        agent=_TOOL,
        project=text_of(row["project"]),
        started=time_of(row["started_at"]),
        ended=time_of(row["ended_at"]),
        place=place,
    )


def _observation(row: Row, path: Path) -> Record:
    content = _without_private(row["content"])
    place = f"{path}: observation {row['id']}"
    type_ = text_of(row["type"]).strip().lower()
    if row["deleted_at"]:
        return LeftOutRecord(place, "it was deleted there")
    if type_ in _NOISE:
        return LeftOutRecord(place, f"it only records a {type_.replace('_', ' ')}")
    if not content:
        return LeftOutRecord(place, "it has no text that can be read")
    kind, type_name = _KINDS.get(type_, ("observation", "note"))
    tags = []
    if type_ and type_ not in _KINDS:
        tags.append(type_)
    if text_of(row["scope"]) == "personal":
        tags.append("personal")
    return MemoryRecord(
        key=text_of(row["sync_id"]) or str(row["id"]),
        title=_without_private(row["title"]) or first_line(content, 120),
        content=content,
        kind=kind,
        type=type_name,
        tags=tuple(tags),
        project=text_of(row["project"]),
        session=text_of(row["session_id"]),
        created=time_of(row["created_at"]),
        updated=time_of(row["updated_at"]),
        place=place,
    )


def _without_private(value: object) -> str:
    return _PRIVATE.sub("", text_of(value)).strip()


ENGRAM = ImportSource(
    _TOOL,
    "the observations, sessions and prompts of engram",
    _find_engram,
    _read_engram,
    takes="~/.engram/engram.db, the file of `engram export`, or a repository's .engram/",
)
