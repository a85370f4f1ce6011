"""The messages of Cursor's agent, and the store in which older versions of its command line keep them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from memoryhub.core.errors import Invalid
from memoryhub.transfer.records import Record
from memoryhub.transfer.sources.databases import Database, open_database
from memoryhub.transfer.sources.reading import (
    dict_or_empty,
    list_or_empty,
    message_text,
    object_in,
    read_settings,
    text_of,
    time_of,
)
from memoryhub.transfer.sources.transcripts import EXIT_CODE, TranscriptBuilder

_QUERY = re.compile(r"<user_query>\s*(.*?)\s*</user_query>", re.DOTALL)
# What a message begins with that only has context
_CONTEXT = re.compile(r"\s*<(?:user_info|timestamp|system_reminder|open_and_recently_viewed_files|git_status|rules)\b")
_TIME = re.compile(
    r"<timestamp>[A-Z][a-z]+, ([A-Z][a-z]{2}) (\d{1,2}), (\d{4}), (\d{1,2}:\d{2} [AP]M) \(UTC([+-]\d{1,2})"
)
_EDITS = ("Write", "StrReplace", "Edit", "MultiEdit", "Delete", "ApplyPatch")
# Messages of a session that are looked up, and bytes of their names
_MAX_MESSAGES = 100_000
_DIGEST = 32


def folder_of_store(store: Path) -> str:
    """Return the folder that a session was in; "" if neither its details nor its store says."""
    if folder := text_of(read_settings(store.with_name("meta.json")).get("cwd")):
        return folder
    try:
        with _open(store) as database:
            return _root_fields(_root(database))[1]
    except Invalid:
        return ""


def store_records(store: Path) -> Iterator[Record]:
    builder = TranscriptBuilder("cursor")
    with _open(store) as database:
        details = _details(database)
        if details.get("name") != "New Agent":
            builder.title = text_of(details.get("name"))
        at = time_of(details.get("createdAt"))
        digests, folder = _root_fields(_root(database))
        builder.note(at, text_of(read_settings(store.with_name("meta.json")).get("cwd")) or folder)
        for digest in digests[:_MAX_MESSAGES]:
            message = object_in(database.value("blobs", digest, column="data", by="id"))
            at = read_message(builder, text_of(message.get("role")), message.get("content"), at)
    yield from builder.records(store.parent.name, str(store))


def _open(store: Path) -> AbstractContextManager[Database]:
    tables = {"blobs": ("id", "data"), "meta": ("key", "value")}
    return open_database(store, "Cursor", tables, by_key=tuple(tables))


def _root(database: Database) -> bytes:
    root = database.value("blobs", text_of(_details(database).get("latestRootBlobId")), column="data", by="id")
    return root if isinstance(root, bytes) else b""


def _details(database: Database) -> dict[str, Any]:
    try:
        return object_in(bytes.fromhex(text_of(database.value("meta", "0"))))
    except ValueError:
        return {}


# A message of protocol buffers: field 1 has the digests of the messages in their order, field 9 the folder's address
def _root_fields(root: bytes) -> tuple[list[str], str]:
    digests: list[str] = []
    folder = ""
    at = 0
    while at < len(root):
        tag, at = _varint(root, at)
        size, after = _varint(root, at)
        if tag & 7 == 0:
            at = after
        elif tag & 7 == 2:
            field = root[after : after + size]
            at = after + size
            if tag >> 3 == 1 and len(field) == _DIGEST:
                digests.append(field.hex())
            elif tag >> 3 == 9:
                folder = unquote(field.decode("utf-8", "replace").removeprefix("file://"))
        else:
            break
    return digests, folder


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(raw) and shift < 64:
        value |= (raw[at] & 0x7F) << shift
        shift += 7
        at += 1
        if raw[at - 1] < 0x80:
            break
    return value, at


def read_message(builder: TranscriptBuilder, role: str, content: Any, at: datetime | None) -> datetime | None:
    """Read a message, and return its time: only prompts have one, so that other messages have that of the last."""
    text = message_text(content)
    if role == "user":
        at = _time_in(text) or at
        builder.note(at)
        if prompt := _prompt_of(text):
            builder.begin(prompt, at)
    elif role == "assistant":
        builder.answer(text, at)
    for part in map(dict_or_empty, list_or_empty(content)):
        _read_tool(builder, part, at)
    return at


def _prompt_of(text: str) -> str:
    if queries := _QUERY.findall(text):
        return "\n\n".join(queries)
    return "" if _CONTEXT.match(text) else text


def _time_in(text: str) -> datetime | None:
    match = _TIME.search(text)
    if not match:
        return None
    month, day, year, time, zone = match.groups()
    try:
        at = datetime.strptime(f"{day} {month} {year} {time} {int(zone):+03d}00", "%d %b %Y %I:%M %p %z")
        return time_of(at.isoformat())
    except ValueError:
        return None


def _read_tool(builder: TranscriptBuilder, part: Mapping[str, Any], at: datetime | None) -> None:
    name = part.get("toolName", part.get("name"))
    call = text_of(part.get("toolCallId"))
    if part.get("type") in ("tool_use", "tool-call"):
        arguments = dict_or_empty(part.get("input", part.get("args")))
        if name in _EDITS:
            builder.edit(text_of(arguments.get("path")) or text_of(arguments.get("file_path")))
        elif name == "Shell" and call:
            builder.call(call, text_of(arguments.get("command")))
    elif part.get("type") == "tool-result" and call:
        output = text_of(part.get("result"))
        failure = EXIT_CODE.search(output[:200])
        builder.result(call, output, int(failure[1]) if failure else None, at)
