"""Source: Codex's transcripts, instructions and memories."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path, PurePosixPath
from typing import Any

from memoryhub.transfer.records import ImportSource, Record, Transcript
from memoryhub.transfer.sources.client_homes import (
    ClientHome,
    SessionHead,
    exit_code_of,
    patched_files,
    session_transcripts,
)
from memoryhub.transfer.sources.reading import dict_or_empty, files_below, list_or_empty, object_in, text_of, time_of
from memoryhub.transfer.sources.transcripts import TranscriptBuilder, head_lines

_FOLDERS = ("sessions", "archived_sessions")
_HOME = ClientHome("Codex", "~/.codex", (*_FOLDERS, "AGENTS.md", "AGENTS.override.md", "memories"))
# Memories that Codex writes itself: the others there are its notes on the way to these
_MEMORIES = PurePosixPath("memories/MEMORY.md")
# What the client puts into the user's messages: <environment_context>, <user_instructions>, <turn_aborted>, …
_INJECTED = re.compile(
    r"# AGENTS\.md instructions\b|<(?:/?image|skill|INSTRUCTIONS|permissions instructions|[a-z]+(?:_[a-z]+)+)\b"
)
_REQUEST = "\n## My request for Codex:\n"
_FOLDER = re.compile(r"<cwd>([^<\n]+)</cwd>|Current working directory: ([^\n]+)")
_SHELLS = ("shell", "shell_command", "exec_command", "local_shell", "container.exec")
_EXIT_CODE = re.compile(r"(?:Process exited with code|Exit code:) (\d{1,9})\b")
_SCRIPT_FLAGS = ("-c", "-lc", "-Command")
# A fork begins with a copy of the lines of the other session, written within this time
_COPYING = timedelta(seconds=5)


def _find(_: Path) -> list[Path]:
    return _HOME.find(os.environ.get("CODEX_HOME"), Path.home() / ".codex")


def _read(path: Path) -> Iterator[Record]:
    names = [PurePosixPath("AGENTS.md"), PurePosixPath("AGENTS.override.md"), _MEMORIES]
    return _HOME.texts(
        _HOME.check(path), includes=lambda file: file in names, enters=lambda file: file in _MEMORIES.parents
    )


def _transcripts(path: Path) -> Iterator[Transcript]:
    files = files_below(
        _HOME.check(path),
        includes=lambda file: file.name.startswith("rollout-") and file.suffix == ".jsonl",
        enters=lambda file: file.parts[0] in _FOLDERS,
        reads_ignored=True,
    )
    return session_transcripts(files, head=_head, reader=_RolloutReader)


def _head(path: Path) -> SessionHead | None:
    key = folder = ""
    for line in head_lines(path):
        kind, payload = _unwrapped(line)
        if kind == "session_meta" and not key:
            if "subagent" in dict_or_empty(payload.get("source")) or payload.get("thread_source") not in (None, "user"):
                return None
            key = text_of(payload.get("id"))
        folder = text_of(payload.get("cwd")) or _folder_in(payload)
        if folder:
            break
    return SessionHead(key or path.stem, folder)


# Without the wrapper, as version 0.20 wrote the lines
def _unwrapped(line: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    payload = line.get("payload")
    if isinstance(payload, dict):
        return text_of(line.get("type")), payload
    if "record_type" not in line and "type" not in line:
        return "session_meta", line
    return "response_item", line


def _folder_in(payload: dict[str, Any]) -> str:
    match = _FOLDER.search("\n".join(_texts(payload)))
    return (match[1] or match[2]).strip() if match else ""


class _RolloutReader:
    def __init__(self, path: Path) -> None:
        self._builder = TranscriptBuilder("codex")
        self._path = path
        self._key = ""
        self._began: datetime | None = None
        # Whether the lines are those of the session that this one was forked from
        self._is_copy = False

    def read(self, line: dict[str, Any]) -> None:
        kind, payload = _unwrapped(line)
        at = time_of(line.get("timestamp")) or self._began
        if kind == "session_meta":
            self._read_meta(payload, at)
        if self._is_copy:
            turn = text_of(payload.get("turn_id"))  # both are UUIDs of version 7, which are in the order of time
            self._is_copy = turn <= self._key and not (at and self._began and at - self._began > _COPYING)
        if self._is_copy or kind == "session_meta":
            return
        self._builder.note(at, text_of(payload.get("cwd")) or ("" if self._builder.folder else _folder_in(payload)))
        if kind == "response_item":
            self._read_item(payload, at)
        elif kind == "event_msg":
            self._read_event(payload, at)
        elif kind == "compacted":
            self._builder.summary = text_of(payload.get("message")) or self._builder.summary

    def _read_meta(self, meta: dict[str, Any], at: datetime | None) -> None:
        session = text_of(meta.get("id"))
        if not self._key:
            self._key = session
            self._began = time_of(meta.get("timestamp")) or at
            self._builder.note(self._began, text_of(meta.get("cwd")))
        elif session != self._key:
            self._is_copy = True

    def _read_item(self, item: dict[str, Any], at: datetime | None) -> None:
        call = text_of(item.get("call_id"))
        match item:
            case {"type": "message", "role": "user"}:
                if prompt := _prompt(item):
                    self._builder.begin(prompt, at)
            case {"type": "message", "role": "assistant"}:
                self._builder.answer("\n".join(_texts(item)).strip(), at)
            case {"type": "function_call", "name": str(name), "arguments": str(arguments)}:
                values = object_in(arguments)
                command = _command(values.get("command") or values.get("cmd")) if name in _SHELLS else ""
                self._builder.call(call, command)
                self._read_patch(command if command else text_of(values.get("input")))
            case {"type": "local_shell_call", "action": dict(action)}:
                self._builder.call(call, _command(action.get("command")))
            case {"type": "custom_tool_call", "name": "apply_patch", "input": str(patch)}:
                self._read_patch(patch)
            case {"type": "function_call_output" | "local_shell_call_output", "output": output}:
                self._builder.result(call, *_outcome(output), at)

    def _read_event(self, event: dict[str, Any], at: datetime | None) -> None:
        match event:
            case {"type": "item_completed", "item": {"type": "CommandExecution", "id": str(call), **run}}:
                output, code = text_of(run.get("aggregated_output")), exit_code_of(run.get("exit_code"))
                self._builder.call(call, _command(run.get("command")))
                self._builder.result(call, output, code, at)
            case {"type": "thread_rolled_back", "num_turns": int(count)}:
                self._builder.undo(count)

    def _read_patch(self, text: str) -> None:
        for name in patched_files(text):
            self._builder.edit(str(PurePosixPath(self._builder.folder, name)))

    def records(self, place: str, broken: list[int]) -> Iterator[Record]:
        return self._builder.records(self._key or self._path.stem, place, broken=broken)


def _prompt(item: dict[str, Any]) -> str:
    texts = _texts(item)
    metadata = dict_or_empty(item.get("internal_chat_message_metadata_passthrough"))
    kinds = list_or_empty(metadata.get("content_item_kinds"))
    if len(kinds) == len(texts):
        texts = [text for text, kind in zip(texts, kinds, strict=True) if text_of(kind).startswith("user.")]
    texts = [text.partition(_REQUEST)[2] or text for text in texts]
    return "\n".join(text.strip() for text in texts if not _INJECTED.match(text.strip())).strip()


def _texts(item: dict[str, Any]) -> list[str]:
    content = item.get("content")
    if isinstance(content, str):
        return [content]
    return [text_of(part.get("text")) for part in map(dict_or_empty, list_or_empty(content))]


def _command(value: Any) -> str:
    if isinstance(value, str):
        return value
    words = list(map(text_of, list_or_empty(value)))
    if len(words) == 3 and words[1] in _SCRIPT_FLAGS:
        return words[2]
    return shlex.join(words)


def _outcome(output: Any) -> tuple[str, int | None]:
    if isinstance(output, dict):
        output = output.get("content")
    text = output if isinstance(output, str) else "\n".join(_texts({"content": output}))
    result = object_in(text) if text.startswith("{") else {}
    if "metadata" in result:
        return text_of(result.get("output")), exit_code_of(dict_or_empty(result["metadata"]).get("exit_code"))
    head, _, printed = text.partition("Output:\n")
    match = _EXIT_CODE.search(head)
    return printed, int(match[1]) if match else None


CODEX = ImportSource(
    "codex",
    "what Codex knows: sessions, AGENTS.md of the user, and its memories",
    _find,
    _read,
    takes="a folder such as ~/.codex",
    transcripts=_transcripts,
)
