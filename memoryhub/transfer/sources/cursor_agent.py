"""The sessions that Cursor's agent keeps in ``~/.cursor``.

``projects/*/agent-transcripts`` has what was said, as JSON lines. Older versions of the command line keep only
``chats/*/*/store.db``, a store of messages by their digests.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from memories.importing.files import modified_at
from memoryhub.config.repository import is_folder
from memoryhub.transfer.records import LeftOutRecord, Record, Transcript
from memoryhub.transfer.sources.cursor_store import folder_of_store, read_message, store_records
from memoryhub.transfer.sources.reading import dict_or_empty, files_below, json_objects, read_settings, text_of, time_of
from memoryhub.transfer.sources.transcripts import TranscriptBuilder, transcripts_of

# Levels of folders, and folders of each, that are compared with the name of a project
_MAX_LEVELS, _MAX_FOLDERS = 40, 2_000


def agent_transcripts(folder: Path, known_sessions: set[str]) -> Iterator[Transcript]:
    """Yield the sessions of a folder ``.cursor``, without those that the editor's database has."""
    chats = {path.parent.name: path.parent for path in sorted((folder / "chats").glob("*/*/store.db"))}
    names = set(known_sessions)
    folders: dict[str, str] = {}
    if is_folder(folder / "projects"):
        files = files_below(folder / "projects", includes=_is_transcript, enters=_enters, reads_ignored=True)
        missing = (file for file in files if isinstance(file, LeftOutRecord) or file.stem not in known_sessions)
        for transcript in transcripts_of(
            missing, folder=partial(_folder_of, chats, folders), read=partial(_transcript_records, chats, folders)
        ):
            names.add(transcript.key)
            yield transcript
    stores = (chat / "store.db" for name, chat in chats.items() if name not in names and not _is_subagent(chat))
    yield from transcripts_of(stores, folder=folder_of_store, read=store_records, key=lambda store: store.parent.name)


def _is_transcript(path: PurePosixPath) -> bool:
    match path.parts:
        case (_, "agent-transcripts", folder, _):
            return path.suffix == ".jsonl" and path.stem == folder
        case (_, "agent-transcripts", _):
            return path.suffix == ".jsonl"
    return False


def _enters(path: PurePosixPath) -> bool:
    return len(path.parts) == 1 or (path.parts[1] == "agent-transcripts" and len(path.parts) <= 3)


def _is_subagent(chat: Path) -> bool:
    return bool(read_settings(chat / "meta.json").get("isSubagent"))


# ``folders`` has those of the projects that were looked up before
def _folder_of(chats: Mapping[str, Path], folders: dict[str, str], file: Path) -> str:
    if file.stem in chats and (folder := folder_of_store(chats[file.stem] / "store.db")):
        return folder
    (name,) = (part for part, below in zip(file.parts, file.parts[1:], strict=False) if below == "agent-transcripts")
    if name not in folders:
        folders[name] = _folder_named(name)
    return folders[name]


# The name of a project is its folder's, with a dash for what is no letter or digit: home-maya-harbour
def _folder_named(name: str) -> str:
    paths = [(Path("/"), _plain(name))]
    for _ in range(_MAX_LEVELS):
        deeper = []
        for path, remainder in paths:
            if not remainder:
                return str(path)
            for folder in _folders_in(path):
                plain = _plain(folder)
                if plain and f"{remainder}-".startswith(f"{plain}-"):
                    deeper.append((path / folder, remainder[len(plain) + 1 :]))
        paths = deeper[:_MAX_FOLDERS]
    return ""


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")


def _folders_in(path: Path) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:
        return []


def _transcript_records(chats: Mapping[str, Path], folders: dict[str, str], file: Path) -> Iterator[Record]:
    builder = TranscriptBuilder("cursor")
    details: dict[str, Any] = {}
    if file.stem in chats:
        details = read_settings(chats[file.stem] / "meta.json")
    broken = []
    changed = modified_at(file)
    at: datetime | None = time_of(details.get("createdAtMs")) or changed
    builder.note(None, _folder_of(chats, folders, file))
    for number, line in json_objects(file):
        if line is None:
            broken.append(number)
        else:
            content = dict_or_empty(line.get("message")).get("content")
            at = read_message(builder, text_of(line.get("role")), content, at)
    builder.note(time_of(details.get("updatedAtMs")) or changed)
    yield from builder.records(file.stem, str(file), broken=broken)
