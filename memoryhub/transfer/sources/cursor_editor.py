"""The sessions in the database of Cursor's editor, which may be large, and open in the editor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from memoryhub.core.errors import Invalid
from memoryhub.transfer.records import MemoryRecord, Record, Transcript
from memoryhub.transfer.sources.databases import Database, open_database
from memoryhub.transfer.sources.reading import dict_or_empty, list_or_empty, object_in, read_settings, text_of, time_of
from memoryhub.transfer.sources.transcripts import EPOCH, TranscriptBuilder

TOOL = "Cursor"
DATABASE = Path("globalStorage", "state.vscdb")
_CONTENT = "cursorDiskKV"
_USER_RULES = "aicontext.personalContext"
_HEADERS = ("composerId", "workspaceId", "createdAt", "lastUpdatedAt", "isSubagent", "value")
# Sessions that one has begun
_PARTS = ("subagentComposerIds", "subComposerIds")
# Messages of a session that are looked up
_MAX_MESSAGES = 100_000
_USER, _ASSISTANT = 1, 2
_COMMANDS = ("run_terminal_cmd", "run_terminal_command", "run_terminal_command_v2")
_EDITS = ("edit_file", "edit_file_v2", "search_replace", "write", "multi_edit", "apply_patch", "delete_file")
_PATHS = ("relativeWorkspacePath", "file_path", "target_file", "path", "targetFile")


def _open(path: Path) -> AbstractContextManager[Database]:
    tables = {_CONTENT: ("key", "value")}
    return open_database(path, TOOL, tables, optional=("ItemTable", "composerHeaders"), by_key=(_CONTENT, "ItemTable"))


def user_rules(path: Path) -> Iterator[Record]:
    """Yield the rules that the user has written for all projects."""
    with _open(path) as database:
        rules = text_of(database.value("ItemTable", _USER_RULES)) if "ItemTable" in database.columns else ""
    if rules.strip():
        place = f"{path}: {_USER_RULES}"
        yield MemoryRecord("user-rules", "User rules of Cursor", rules.strip(), kind="guideline", place=place)


def session_names(path: Path) -> set[str]:
    """Return the ids of the sessions of a database.

    Raises:
        Invalid: it cannot be read.
    """
    with _open(path) as database:
        return {key.partition(":")[2] for key, _ in database.keys(_CONTENT, "composerData:")}


@dataclass(frozen=True, slots=True)
class _Header:
    folder: str = ""
    changed: datetime = EPOCH
    # Begun by another session, or one of several attempts at the same
    is_part: bool = False


def editor_transcripts(user: Path) -> Iterator[Transcript]:
    """Yield the sessions of a folder ``User``, without those that others have begun and without empty ones."""
    path = user / DATABASE
    sizes: dict[str, int] = {}
    headers: dict[str, _Header] = {}
    with _open(path) as database:
        index = _index(database, user)
        for key, size in database.keys(_CONTENT, "bubbleId:"):
            session = key.split(":")[1]
            sizes[session] = sizes.get(session, 0) + size
        for key, size in database.keys(_CONTENT, "composerData:"):
            session = key.partition(":")[2]
            if session not in index or session not in sizes:
                data = object_in(database.value(_CONTENT, key))
                index.setdefault(session, _header(data, user))
                for part in (
                    *list_or_empty(data.get("subagentComposerIds")),
                    *list_or_empty(data.get("subComposerIds")),
                ):
                    headers[text_of(part)] = _Header(is_part=True)
                if session not in sizes and not data.get("conversation"):
                    continue
            headers.setdefault(session, index[session])
            sizes[session] = sizes.get(session, 0) + size
    for session, header in headers.items():
        if not header.is_part:
            yield Transcript(
                session, header.folder, path, sizes[session], header.changed, partial(_records, path, session, header)
            )


# Newer versions list sessions in a table, older ones in a value, and before that in the workspaces' databases
def _index(database: Database, user: Path) -> dict[str, _Header]:
    index: dict[str, _Header] = {}
    if "composerHeaders" in database.columns:
        for row in database.rows("composerHeaders", _HEADERS):
            data = {**object_in(row["value"]), **{name: row[name] for name in _HEADERS[1:5] if row[name]}}
            index[text_of(row["composerId"])] = _header(data, user)
    if "ItemTable" in database.columns:
        for data in _composers(database, "composer.composerHeaders"):
            index.setdefault(text_of(data.get("composerId")), _header(data, user))
    for workspace in _workspaces(user):
        try:
            with open_database(workspace / "state.vscdb", TOOL, {"ItemTable": ()}, by_key=["ItemTable"]) as older:
                for data in _composers(older, "composer.composerData"):
                    header = _header({**data, "workspaceId": workspace.name}, user)
                    if not index.get(text_of(data.get("composerId")), _Header()).folder:
                        index[text_of(data.get("composerId"))] = header
        except Invalid:
            continue
    return index


def _workspaces(user: Path) -> list[Path]:
    return sorted(path.parent for path in (user / "workspaceStorage").glob("*/state.vscdb"))


def _composers(database: Database, key: str) -> Iterator[dict[str, Any]]:
    data = object_in(database.value("ItemTable", key))
    yield from map(dict_or_empty, list_or_empty(data.get("allComposers")))


def _header(data: Mapping[str, Any], user: Path) -> _Header:
    workspace = dict_or_empty(data.get("workspaceIdentifier"))
    uri = dict_or_empty(workspace.get("uri"))
    folder = text_of(uri.get("fsPath")) or text_of(uri.get("path")) if uri.get("scheme", "file") == "file" else ""
    name = text_of(workspace.get("id")) or text_of(data.get("workspaceId"))
    if not folder and name and Path(name).name == name:
        folder = _folder_of(read_settings(user / "workspaceStorage" / name / "workspace.json"))
    moments = map(time_of, (data.get("lastUpdatedAt"), data.get("createdAt")))
    is_part = bool(data.get("isSubagent") or data.get("isBestOfNSubcomposer"))
    return _Header(folder, next(filter(None, moments), EPOCH), is_part)


def _folder_of(workspace: Mapping[str, Any]) -> str:
    try:
        address = urlsplit(text_of(workspace.get("folder")))
    except ValueError:
        return ""
    return unquote(address.path) if address.scheme == "file" else ""


def _records(path: Path, session: str, header: _Header) -> Iterator[Record]:
    with _open(path) as database:
        data = object_in(database.value(_CONTENT, f"composerData:{session}"))
        builder = TranscriptBuilder("cursor")
        builder.title = text_of(data.get("name"))
        at = time_of(data.get("createdAt"))
        builder.note(at, header.folder)
        for bubble in _bubbles(database, data, session):
            at = _bubble_time(bubble) or at
            _read_bubble(builder, bubble, at)
    yield from builder.records(session, f"{path}: {session}")


# In older versions the session has its messages in itself
def _bubbles(database: Database, data: Mapping[str, Any], session: str) -> Iterator[dict[str, Any]]:
    yield from map(dict_or_empty, list_or_empty(data.get("conversation"))[:_MAX_MESSAGES])
    for header in list_or_empty(data.get("fullConversationHeadersOnly"))[:_MAX_MESSAGES]:
        name = text_of(dict_or_empty(header).get("bubbleId"))
        if name:
            yield object_in(database.value(_CONTENT, f"bubbleId:{session}:{name}"))


# Many messages have no time: it is that of the one before then
def _bubble_time(bubble: Mapping[str, Any]) -> datetime | None:
    timing = dict_or_empty(bubble.get("timingInfo"))
    return time_of(bubble.get("createdAt")) or time_of(timing.get("clientStartTime"))


def _read_bubble(builder: TranscriptBuilder, bubble: Mapping[str, Any], at: datetime | None) -> None:
    text = text_of(bubble.get("text")).strip()
    builder.note(at)
    if bubble.get("type") == _USER and text:
        builder.begin(text, at)
    elif bubble.get("type") == _ASSISTANT:
        builder.answer(text, at)
        _read_tool(builder, dict_or_empty(bubble.get("toolFormerData")), at)


def _read_tool(builder: TranscriptBuilder, tool: Mapping[str, Any], at: datetime | None) -> None:
    arguments = {**object_in(tool.get("rawArgs")), **object_in(tool.get("params"))}
    if tool.get("name") in _EDITS and tool.get("status") == "completed":
        builder.edit(next(filter(None, (text_of(arguments.get(name)) for name in _PATHS)), ""))
    elif tool.get("name") in _COMMANDS:
        result = object_in(tool.get("result"))
        exit_code = result.get("exitCodeV2", result.get("exitCode", 0))
        if tool.get("status") != "completed" or result.get("rejected") or not isinstance(exit_code, int):
            exit_code = None
        builder.run(text_of(arguments.get("command")), text_of(result.get("output")).strip(), exit_code, at)
