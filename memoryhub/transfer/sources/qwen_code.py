"""Source: Qwen Code's sessions, instructions and memories."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any

from memoryhub.transfer.records import ImportSource, Record, Transcript
from memoryhub.transfer.sources.client_homes import ClientHome, SessionHead, session_transcripts
from memoryhub.transfer.sources.gemini_cli import SNAPSHOT, ChatReader, clean_prompt, session_head, shell_outcome
from memoryhub.transfer.sources.reading import dict_or_empty, files_below, list_or_empty, message_text, text_of, time_of
from memoryhub.transfer.sources.transcripts import SessionReader, TranscriptBuilder, folder_of_project, head_lines

_HOME = ClientHome("Qwen Code", "~/.qwen", ("projects", "tmp", "QWEN.md", "memories"))
_EDITING = ("edit", "write_file", "replace")


def _find(_: Path) -> list[Path]:
    return _HOME.find(os.environ.get("QWEN_RUNTIME_DIR"), os.environ.get("QWEN_HOME") or Path.home() / ".qwen")


def _read(path: Path) -> Iterator[Record]:
    return _HOME.texts(_HOME.check(path), includes=_is_text, enters=_has_texts, project=_project_of)


# MEMORY.md only lists the other files
def _is_text(file: PurePosixPath) -> bool:
    is_memory = file.match("projects/*/memory/*.md") or file.match("memories/*.md")
    return file.as_posix() == "QWEN.md" or (is_memory and file.name != "MEMORY.md")


def _has_texts(file: PurePosixPath) -> bool:
    return file.as_posix() in ("projects", "memories") or file.match("projects/*") or file.match("projects/*/memory")


def _project_of(file: Path) -> str:
    return folder_of_project(file.parent.parent, "chats/*.jsonl") if file.parent.name == "memory" else ""


def _transcripts(path: Path) -> Iterator[Transcript]:
    files = files_below(
        _HOME.check(path),
        includes=lambda file: file.match("projects/*/chats/*.jsonl") or file.match("tmp/*/chats/session-*.json"),
        enters=lambda file: file.parts[0] in ("projects", "tmp") and (len(file.parts) < 3 or file.name == "chats"),
        reads_ignored=True,
    )
    return session_transcripts(files, head=_head, reader=_reader)


def _head(path: Path) -> SessionHead | None:
    if path.suffix == ".json":
        return session_head(path, "")
    for line in head_lines(path):
        if line.get("isSidechain"):
            return None
        if folder := text_of(line.get("cwd")):
            return SessionHead(text_of(line.get("sessionId")) or path.stem, folder)
    return SessionHead(path.stem)


def _reader(path: Path) -> SessionReader:
    if path.suffix == ".json":
        return ChatReader("qwen-code", path, "")
    return _RecordReader(path)


class _RecordReader:
    def __init__(self, path: Path) -> None:
        self._builder = TranscriptBuilder("qwen-code")
        self._key = path.stem
        # Turns until each record, to which the user can go back
        self._turns: dict[str, int] = {}
        self._begun = 0
        self._edits: dict[str, str] = {}

    def read(self, line: dict[str, Any]) -> None:
        if line.get("isSidechain"):
            return
        at, message = time_of(line.get("timestamp")), dict_or_empty(line.get("message"))
        parts = list(map(dict_or_empty, list_or_empty(message.get("parts"))))
        self._key = text_of(line.get("sessionId")) or self._key
        self._builder.note(at, text_of(line.get("cwd")))
        match line.get("type"):
            case "user":
                prompt = clean_prompt(message_text(parts))
                if prompt and line.get("provenance") in (None, "real_user") and not line.get("subtype"):
                    self._builder.begin(prompt, at, is_command=prompt.startswith(("/", "?")))
                    self._begun += 1
            case "assistant":
                self._builder.answer(message_text(parts), at)
                for part in parts:
                    self._read_call(dict_or_empty(part.get("functionCall")))
            case "tool_result":
                for part in parts:
                    self._read_result(dict_or_empty(part.get("functionResponse")), line, at)
            case "system":
                self._read_event(line)
        self._turns[text_of(line.get("uuid"))] = self._begun

    def _read_call(self, call: dict[str, Any]) -> None:
        name, arguments = text_of(call.get("id")), dict_or_empty(call.get("args"))
        if call.get("name") == "run_shell_command":
            self._builder.call(name, text_of(arguments.get("command")))
        elif call.get("name") in _EDITING:
            self._edits[name] = text_of(arguments.get("file_path"))

    def _read_result(self, response: dict[str, Any], line: dict[str, Any], at: datetime | None) -> None:
        name, values = text_of(response.get("id")), dict_or_empty(response.get("response"))
        outcome = dict_or_empty(line.get("toolCallResult"))
        path = self._edits.pop(name, "")
        if outcome.get("status") == "success":
            self._builder.edit(path)
        # The newest versions give the output of a command that failed as an error
        text = text_of(values.get("output")) or text_of(values.get("error"))
        output, code = shell_outcome(text, outcome.get("resultDisplay"))
        self._builder.result(name, output, code, at)

    def _read_event(self, line: dict[str, Any]) -> None:
        payload = dict_or_empty(line.get("systemPayload"))
        if line.get("subtype") == "custom_title":
            self._builder.title = text_of(payload.get("customTitle")) or self._builder.title
        elif line.get("subtype") == "rewind":
            turns = self._turns.get(text_of(line.get("parentUuid")), 0)
            self._builder.undo(self._begun - turns)
            self._begun = turns
        elif line.get("subtype") == "chat_compression":
            for content in map(dict_or_empty, list_or_empty(payload.get("compressedHistory"))):
                if match := SNAPSHOT.search(message_text(content.get("parts"))):
                    self._builder.summary = match[1].strip()

    def records(self, place: str, broken: list[int]) -> Iterator[Record]:
        return self._builder.records(self._key, place, broken=broken)


QWEN_CODE = ImportSource(
    "qwen-code",
    "what Qwen Code knows: sessions, QWEN.md of the user, and its memories",
    _find,
    _read,
    takes="a folder such as ~/.qwen",
    transcripts=_transcripts,
)
