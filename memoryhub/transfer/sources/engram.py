"""The observations, sessions and prompts of engram, from its database or its export."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from memoryhub.core.errors import Invalid
from memoryhub.core.text import first_line, flat
from memoryhub.transfer.records import LeftOut, MemoryRecord, Record, SessionRecord, Source, TurnRecord
from memoryhub.transfer.sources.databases import Row, joined, moment_of, open_database, text_of
from memoryhub.transfer.sources.reading import is_sqlite, read_json

_TOOL = "engram"
_FILE = "engram.db"
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


def _find() -> list[Path]:
    folder = Path(os.environ.get("ENGRAM_DATA_DIR") or Path.home() / ".engram")
    return [path] if (path := folder / _FILE).is_file() else []


def _read(path: Path) -> Iterator[Record]:
    place = path / _FILE if path.is_dir() else path
    yield from _database(place) if not place.is_file() or is_sqlite(place) else _export(place)


def _database(path: Path) -> Iterator[Record]:
    with open_database(path, _TOOL, _TABLES) as database:
        prompts = database.rows("user_prompts", _PROMPT, order="session_id, id")
        sessions = database.rows("sessions", _SESSION, order="id")
        yield from _records(sessions, prompts, database.rows("observations", _OBSERVATION), path)


def _export(path: Path) -> Iterator[Record]:
    data = read_json(path)
    parts = [data.get(name) for name in ("sessions", "observations", "prompts")] if isinstance(data, dict) else [None]
    if not all(part is None or isinstance(part, list) for part in parts) or not any(parts):
        raise Invalid(f"{flat(str(path))} is no export of {_TOOL}")
    sessions, observations, prompts = ([row for row in part or [] if isinstance(row, dict)] for part in parts)
    ordered = sorted(prompts, key=lambda row: (text_of(row.get("session_id")), _number(row.get("id"))))
    by_id = sorted(sessions, key=lambda row: text_of(row.get("id")))
    yield from _records(_filled(by_id, _SESSION), _filled(ordered, _PROMPT), _filled(observations, _OBSERVATION), path)


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _filled(rows: Iterable[Row], names: tuple[str, ...]) -> Iterator[Row]:
    yield from ({name: row.get(name) for name in names} for row in rows)


# Sessions are sorted by id and prompts by session
def _records(
    sessions: Iterable[Row], prompts: Iterable[Row], observations: Iterable[Row], path: Path
) -> Iterator[Record]:
    for row, group in joined(sessions, prompts, "id", "session_id"):
        yield _session(row, [_turn(prompt) for prompt in group.rows], path)
        if group.beyond:
            yield LeftOut(
                f"{path}: session {text_of(row['id'])}",
                f"prompts after the first {len(group.rows):,}: {group.beyond:,}",
            )
    yield from (_observation(row, path) for row in observations)


def _session(row: Row, turns: list[TurnRecord], path: Path) -> Record:
    key = text_of(row["id"])
    summary = _clean(row["summary"])
    return SessionRecord(
        key=key,
        purpose=first_line(turns[0].prompt if turns else summary, 200),
        turns=tuple(turns),
        summary=summary,
        agent=_TOOL,
        project=text_of(row["project"]),
        started=moment_of(row["started_at"]),
        ended=moment_of(row["ended_at"]),
        place=f"{path}: session {key}",
    )


# It keeps prompts without their answers
def _turn(row: Row) -> TurnRecord:
    return TurnRecord(_clean(row["content"]), "", moment_of(row["created_at"]))


def _observation(row: Row, path: Path) -> Record:
    key, content = text_of(row["sync_id"]) or str(row["id"]), _clean(row["content"])
    place, type_ = f"{path}: observation {row['id']}", text_of(row["type"]).strip().lower()
    if row["deleted_at"]:
        return LeftOut(place, "it was deleted there")
    if type_ in _NOISE:
        return LeftOut(place, f"it only records a {type_.replace('_', ' ')}")
    if not content:
        return LeftOut(place, "it has no text that can be read")
    kind, own = _KINDS.get(type_, ("observation", "note"))
    is_personal = text_of(row["scope"]) == "personal"
    return MemoryRecord(
        key=key,
        title=_clean(row["title"]) or first_line(content, 120),
        content=content,
        kind=kind,
        type=own,
        tags=tuple(filter(None, (type_ if type_ not in _KINDS else "", "personal" if is_personal else ""))),
        project=text_of(row["project"]),
        session=text_of(row["session_id"]),
        created=moment_of(row["created_at"]),
        updated=moment_of(row["updated_at"]),
        place=place,
    )


def _clean(value: object) -> str:
    return _PRIVATE.sub("", text_of(value)).strip()


ENGRAM = Source(_TOOL, "the observations, sessions and prompts of engram", _find, _read)
