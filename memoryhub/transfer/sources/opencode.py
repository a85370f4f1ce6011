"""Source: OpenCode's sessions and the user's instructions for it."""

from __future__ import annotations

import os
import re
import weakref
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from memoryhub.core.errors import Invalid
from memoryhub.transfer.records import ImportSource, LeftOutRecord, Record, Transcript
from memoryhub.transfer.sources.client_homes import ClientHome, exit_code_of, patched_files
from memoryhub.transfer.sources.databases import Database, joined, open_database
from memoryhub.transfer.sources.reading import dict_or_empty, files_below, object_in, read_settings, text_of, time_of
from memoryhub.transfer.sources.transcripts import EPOCH, TranscriptBuilder

_HOME = ClientHome("OpenCode", "~/.config/opencode", ("opencode.db", "storage", "AGENTS.md"))
_SESSION = ("id", "parent_id", "directory", "title", "time_created", "time_updated")
_MESSAGE = ("id", "session_id", "data")
_PART = ("id", "message_id", "session_id", "data")
_QUOTED = re.compile(r'"([^"]+)"')
_NO_TITLE = re.compile(r"(?:New|Child) session - \d{4}-")
# A fork has copies of the messages of the other session, with their times
_TOLERANCE = timedelta(seconds=1)


def _find(_: Path) -> list[Path]:
    home = Path.home()
    data = Path(os.environ.get("XDG_DATA_HOME") or home / ".local" / "share") / "opencode"
    config = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config") / "opencode"
    return _HOME.find(data, config)


def _read(path: Path) -> Iterator[Record]:
    return _HOME.texts(_HOME.check(path), includes=lambda file: file.as_posix() == "AGENTS.md", enters=lambda _: False)


@dataclass(frozen=True, slots=True)
class _SessionInfo:
    key: str
    parent: str
    directory: str
    title: str
    created: datetime | None
    updated: datetime | None
    # The first message that the user has taken back
    reverted: str
    place: Path


class _Store(Protocol):
    def messages(self, session: str) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
        """Yield the messages of a session with their parts, in their order."""


def _transcripts(path: Path) -> Iterator[Transcript]:
    folder = _HOME.check(path)
    keys = set()
    # Newer versions have copied the files into the database
    for database in sorted(folder.glob("opencode*.db")):
        try:
            sessions = list(_database_sessions(database))
        except Invalid as error:
            left_out = LeftOutRecord(str(database), error.message)
            yield Transcript(str(database), "", database, 0, EPOCH, partial(iter, [left_out]))
            continue
        keys |= {session.key for session in sessions}
        yield from _listed(sessions, _DatabaseStore(database))
    if (folder / "storage").is_dir():
        files = _FileStore(folder / "storage")
        sessions = [session for session in files.sessions() if session.key not in keys]
        yield from _listed(sessions, files)


def _listed(sessions: list[_SessionInfo], store: _Store) -> Iterator[Transcript]:
    for session in sessions:
        if not session.parent:  # it is a sub-agent's otherwise
            # What is in a database has no size of its own
            size = max(session.place.stat().st_size // len(sessions), 1)
            changed = session.updated or session.created or EPOCH
            read = partial(_session_records, store, session)
            yield Transcript(session.key, session.directory, session.place, size, changed, read)


def _database_sessions(path: Path) -> Iterator[_SessionInfo]:
    with open_database(path, "OpenCode", {"session": _SESSION}) as database:
        for row in database.rows("session", (*_SESSION, "revert")):
            times = {"created": row["time_created"], "updated": row["time_updated"]}
            names = {"parentID": row["parent_id"], "revert": object_in(row["revert"])}
            yield _session_of(text_of(row["id"]), {**row, **names, "time": times}, path)


def _session_of(key: str, info: dict[str, Any], place: Path) -> _SessionInfo:
    times = dict_or_empty(info.get("time"))
    return _SessionInfo(
        key=key,
        parent=text_of(info.get("parentID")),
        directory=text_of(info.get("directory")),
        title=text_of(info.get("title")),
        created=time_of(times.get("created")),
        updated=time_of(times.get("updated")),
        reverted=text_of(dict_or_empty(info.get("revert")).get("messageID")),
        place=place,
    )


class _DatabaseStore:
    """The database, which stays open until the last transcript is gone: it may have been copied to be read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stack = ExitStack()
        self._database: Database | None = None
        weakref.finalize(self, self._stack.close)

    def messages(self, session: str) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
        tables = {"message": _MESSAGE, "part": _PART}
        if self._database is None:
            self._database = self._stack.enter_context(open_database(self._path, "OpenCode", tables))
        equals = ("session_id", session)
        messages = self._database.rows("message", _MESSAGE, order="id", equals=equals)
        parts = self._database.rows("part", _PART, order="message_id, id", equals=equals)
        for message, group in joined(messages, parts, "id", "message_id"):
            data = {**object_in(message["data"]), "id": text_of(message["id"])}
            yield data, [object_in(part["data"]) for part in group.rows]


class _FileStore:
    """The files of earlier versions, such as 1.0: one for each session, message and part."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def sessions(self) -> Iterator[_SessionInfo]:
        for path in self._files("session", 2):
            yield _session_of(path.stem, read_settings(path), path)

    def messages(self, session: str) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
        for path in self._files(f"message/{session}", 1):
            parts = [read_settings(part) for part in self._files(f"part/{path.stem}", 1)]
            yield {**read_settings(path), "id": path.stem}, parts

    def _files(self, name: str, depth: int) -> Iterator[Path]:
        if not (self._folder / name).is_dir():
            return
        files = files_below(
            self._folder / name,
            includes=lambda file: len(file.parts) == depth and file.suffix == ".json",
            enters=lambda file: len(file.parts) < depth,
            reads_ignored=True,
        )
        yield from (file for file in files if isinstance(file, Path))


def _session_records(store: _Store, session: _SessionInfo) -> Iterator[Record]:
    builder = TranscriptBuilder("opencode")
    builder.note(session.created, session.directory)
    if not _NO_TITLE.match(session.title):
        builder.title = session.title
    for message, parts in store.messages(session.key):
        if session.reverted and text_of(message.get("id")) >= session.reverted:
            break
        at = time_of(dict_or_empty(message.get("time")).get("created"))
        if not (at and session.created and at < session.created - _TOLERANCE):
            _read_message(builder, message, parts, at)
    yield from builder.records(session.key, str(session.place))


def _read_message(
    builder: TranscriptBuilder, message: dict[str, Any], parts: list[dict[str, Any]], at: datetime | None
) -> None:
    texts = [text_of(part.get("text")).strip() for part in parts if _is_text(part)]
    text = "\n".join(filter(None, texts))
    builder.note(at)
    if message.get("role") == "user":
        if text and not any(part.get("type") == "compaction" for part in parts):
            builder.begin(_unquoted(text), at)
    elif message.get("summary") is True:
        builder.summary = text or builder.summary
    elif message.get("role") == "assistant":
        completed = time_of(dict_or_empty(message.get("time")).get("completed"))
        builder.note(completed)
        for part in parts:
            if part.get("type") == "tool":
                _read_tool(builder, part)
        builder.answer(text, completed or at)


def _is_text(part: dict[str, Any]) -> bool:
    return part.get("type") == "text" and not part.get("synthetic") and not part.get("ignored")


# `opencode run` puts quotes around a prompt of several words
def _unquoted(text: str) -> str:
    match = _QUOTED.fullmatch(text)
    return match[1] if match else text


def _read_tool(builder: TranscriptBuilder, part: dict[str, Any]) -> None:
    state = dict_or_empty(part.get("state"))
    arguments = dict_or_empty(state.get("input"))
    if state.get("status") != "completed":
        return
    if part.get("tool") == "bash":
        code = exit_code_of(dict_or_empty(state.get("metadata")).get("exit"))
        at = time_of(dict_or_empty(state.get("time")).get("end"))
        builder.run(text_of(arguments.get("command")), text_of(state.get("output")), code, at)
    elif part.get("tool") in ("edit", "write", "multiedit"):
        builder.edit(text_of(arguments.get("filePath")))
    elif part.get("tool") in ("patch", "apply_patch"):
        for name in patched_files(text_of(arguments.get("patchText"))):
            builder.edit(str(Path(builder.folder, name)))


OPENCODE = ImportSource(
    "opencode",
    "what OpenCode knows: sessions, and AGENTS.md of the user",
    _find,
    _read,
    takes="a folder such as ~/.local/share/opencode or ~/.config/opencode",
    transcripts=_transcripts,
)
