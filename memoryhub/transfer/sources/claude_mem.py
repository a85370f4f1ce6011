"""The observations, prompts and summaries of claude-mem, from its SQLite database or its export."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from memoryhub.core.text import first_line
from memoryhub.transfer.records import ImportSource, LeftOutRecord, MemoryRecord, Record, SessionRecord
from memoryhub.transfer.sources.databases import Database, Row, joined, open_database
from memoryhub.transfer.sources.reading import ToolExport, file_in, is_json, list_or_empty, text_of, time_of
from memoryhub.transfer.sources.texts import clean_tags
from sessions_app.services.past_sessions import PastTurn

_TOOL = "claude-mem"
_FILE = "claude-mem.db"
_SESSION = ("id", "content_session_id", "memory_session_id", "project", "user_prompt", "started_at_epoch")
_ENDS = ("completed_at_epoch", "custom_title")
_TEXTS = ("facts", "concepts", "files_read", "files_modified")
_OBSERVATION = ("id", "memory_session_id", "project", "text", "type", "title", "subtitle", "narrative", *_TEXTS)
_PARTS = ("request", "investigated", "learned", "completed", "next_steps", "notes")
_SUMMARY = ("memory_session_id", *_PARTS)
_PROMPT = ("content_session_id", "prompt_text", "created_at_epoch")
_TABLES = {
    "sdk_sessions": _SESSION[:4],
    "observations": ("id", "memory_session_id", "project", "type", "title"),
    "session_summaries": _SUMMARY[:1],
    "user_prompts": _PROMPT,
}
_LISTS = {
    "sdk_sessions": "sessions",
    "observations": "observations",
    "session_summaries": "summaries",
    "user_prompts": "prompts",
}
# What it puts into prompts and texts itself
_INJECTED = re.compile(r"<(claude-mem-context|system-reminder)>.*?(?:</\1>|\Z)", re.DOTALL)
_KINDS = {"decision": ("knowledge", "decision"), "discovery": ("knowledge", "fact")}


def _find_claude_mem(_: Path) -> list[Path]:
    path = Path(os.environ.get("CLAUDE_MEM_DATA_DIR") or Path.home() / ".claude-mem") / _FILE
    return list(filter(Path.is_file, [path]))


def _read_claude_mem(path: Path) -> Iterator[Record]:
    if is_json(path):
        export = ToolExport(path, _LISTS, _TOOL)
        export.add_missing("sdk_sessions", "content_session_id", of=("user_prompts", "content_session_id"))
        yield from _records(export, path)
        if export.left_out:
            yield LeftOutRecord(str(path), f"entries that are no rows: {export.left_out}")
    else:
        with open_database(file_in(path, _FILE), _TOOL, _TABLES) as database:
            yield from _records(database, path)


def _records(source: Database | ToolExport, path: Path) -> Iterator[Record]:
    # Observations name the tool's own session, and prompts that of the client
    clients: dict[str, str] = {}
    for session in source.rows("sdk_sessions", _SESSION):
        clients[text_of(session["memory_session_id"])] = text_of(session["content_session_id"])
    yield from _sessions(source, clients, path)
    for row in source.rows("observations", (*_OBSERVATION, "created_at_epoch")):
        yield _observation(row, clients, path)


def _sessions(source: Database | ToolExport, clients: Mapping[str, str], path: Path) -> Iterator[Record]:
    summaries: dict[str, str] = {}
    for summary in source.rows("session_summaries", _SUMMARY):  # the last one counts
        summaries[clients.get(text_of(summary["memory_session_id"]), "")] = _summary(summary)
    order = "content_session_id, prompt_number, id"
    prompts = source.rows("user_prompts", _PROMPT, order=order)
    sessions = source.rows("sdk_sessions", (*_SESSION, *_ENDS), order="content_session_id")
    for row, group in joined(sessions, prompts, "content_session_id", "content_session_id"):
        place = f"{path}: session {row['id']}"
        yield _session_record(row, group.rows, summaries, place)
        yield from group.left_out(place)


def _session_record(row: Row, prompts: list[Row], summaries: Mapping[str, str], place: str) -> Record:
    key = text_of(row["content_session_id"])
    if not key:
        return LeftOutRecord(place, "it has no id that can be read")
    first = _without_tags(row["user_prompt"])
    turns = []
    for prompt in prompts:  # it keeps prompts without their answers
        turns.append(PastTurn(_without_tags(prompt["prompt_text"]), "", time_of(prompt["created_at_epoch"])))
    return SessionRecord(
        key=key,
        purpose=text_of(row["custom_title"]) or first_line(first, 200),
        turns=tuple(turns),
        summary=summaries.get(key, ""),
        agent="claude-code",
        project=text_of(row["project"]),
        started=time_of(row["started_at_epoch"]),
        ended=time_of(row["completed_at_epoch"]),
        place=place,
    )


def _summary(row: Row) -> str:
    parts = ((name.replace("_", " ").capitalize(), _without_tags(row[name])) for name in _PARTS)
    return "\n\n".join(f"{label}: {text}" for label, text in parts if text)


def _observation(row: Row, clients: Mapping[str, str], path: Path) -> Record:
    place = f"{path}: observation {row['id']}"
    lists = {name: _list(row[name]) for name in _TEXTS}
    files = [f"{label}: {', '.join(lists[name])}" for name, label in _FILES.items() if lists[name]]
    facts = "\n".join(f"- {fact}" for fact in lists["facts"])
    parts = (*(_without_tags(row[name]) for name in ("subtitle", "narrative", "text")), facts, "\n".join(files))
    content = "\n\n".join(filter(None, parts))
    if not isinstance(row["id"], int) or not content:
        return LeftOutRecord(place, "it has no text that can be read")
    type_ = text_of(row["type"]).strip().lower()
    kind, type_name = _KINDS.get(type_, ("observation", "note"))
    tags = lists["concepts"]
    if type_ not in _KINDS:
        tags = [*tags, type_]
    return MemoryRecord(
        # Each database counts its ids from 1, and a person may import those of several machines
        key=f"{text_of(row['memory_session_id'])}:{row['id']}",
        title=_without_tags(row["title"]) or first_line(content, 120),
        content=content,
        kind=kind,
        type=type_name,
        tags=clean_tags(tags),
        project=text_of(row["project"]),
        session=clients.get(text_of(row["memory_session_id"]), ""),
        created=time_of(row["created_at_epoch"]),
        place=place,
    )


_FILES = {"files_read": "Files read", "files_modified": "Files changed"}


def _list(value: object) -> list[str]:
    try:
        items = list_or_empty(json.loads(text_of(value) or "[]"))
    except (ValueError, RecursionError):
        return []
    return [_without_tags(item) for item in items if isinstance(item, str)]


def _without_tags(value: object) -> str:
    return _INJECTED.sub("", text_of(value)).strip()


CLAUDE_MEM = ImportSource(
    _TOOL,
    "the observations, prompts and summaries of claude-mem",
    _find_claude_mem,
    _read_claude_mem,
    takes="~/.claude-mem/claude-mem.db, or the JSON file of its export",
)
