"""Source: Copilot CLI's sessions and the user's instructions for it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from memoryhub.transfer.records import ImportSource, Record, Transcript
from memoryhub.transfer.sources.client_homes import (
    ClientHome,
    SessionHead,
    exit_code_of,
    patched_files,
    session_transcripts,
)
from memoryhub.transfer.sources.reading import dict_or_empty, files_below, list_or_empty, text_of, time_of
from memoryhub.transfer.sources.transcripts import TranscriptBuilder, head_lines

_SESSIONS = "session-state"
_HOME = ClientHome("Copilot CLI", "~/.copilot", (_SESSIONS, "copilot-instructions.md", "instructions"))
# How the output of a command ends
_ENDED = re.compile(r"\n?<(?:shellId: \d+ completed|exited|command completed) with exit code (-?\d{1,9})>\s*\Z")
_SHELLS = ("bash", "powershell", "shell")


def _find(_: Path) -> list[Path]:
    # Earlier versions, such as 0.0.372, used the XDG folders
    variables = [os.environ.get("XDG_STATE_HOME"), os.environ.get("XDG_CONFIG_HOME"), Path.home()]
    return _HOME.find(os.environ.get("COPILOT_HOME"), *(Path(base) / ".copilot" for base in variables if base))


def _read(path: Path) -> Iterator[Record]:
    return _HOME.texts(
        _HOME.check(path),
        includes=lambda file: (
            file.as_posix() == "copilot-instructions.md" or file.match("instructions/*.instructions.md")
        ),
        enters=lambda file: file.as_posix() == "instructions",
    )


def _transcripts(path: Path) -> Iterator[Transcript]:
    files = files_below(
        _HOME.check(path),
        includes=lambda file: file.match(f"{_SESSIONS}/*/events.jsonl") or file.match(f"{_SESSIONS}/*.jsonl"),
        enters=lambda file: file.parts[0] == _SESSIONS and len(file.parts) <= 2,
        reads_ignored=True,
    )
    return session_transcripts(files, head=_head, reader=_EventReader)


def _head(path: Path) -> SessionHead | None:
    key = folder = ""
    for line in head_lines(path):
        data = dict_or_empty(line.get("data"))
        if line.get("type") == "session.start":
            if data.get("detachedFromSpawningParentSessionId"):
                return None  # the client's own run after a session
            key = text_of(data.get("sessionId"))
        folder = folder or text_of(dict_or_empty(data.get("context")).get("cwd"))
        if key and folder:
            break
    return SessionHead(key or _key_of(path), folder)


def _key_of(path: Path) -> str:
    return path.parent.name if path.name == "events.jsonl" else path.stem


class _EventReader:
    def __init__(self, path: Path) -> None:
        self._builder = TranscriptBuilder("copilot-cli")
        self._key = _key_of(path)
        # Prompts, by the ids of their events
        self._prompts: list[str] = []
        self._edits: dict[str, list[str]] = {}

    def read(self, line: dict[str, Any]) -> None:
        data, at = dict_or_empty(line.get("data")), time_of(line.get("timestamp"))
        # What sub-agents did has the id of one, or of the call that began it
        if line.get("agentId") or data.get("parentToolCallId"):
            return
        match line.get("type"):
            case "session.start" | "session.resume":
                self._key = text_of(data.get("sessionId")) or self._key
                self._builder.note(at, text_of(dict_or_empty(data.get("context")).get("cwd")))
            case "session.title_changed":
                self._builder.title = text_of(data.get("title")) or self._builder.title
            case "session.compaction_complete":
                self._builder.summary = text_of(data.get("summaryContent")) or self._builder.summary
            case "session.snapshot_rewind":
                self._rewind(data)
            case "user.message":
                self._read_prompt(text_of(line.get("id")), data, at)
            case "assistant.message":
                self._builder.note(at)
                self._builder.answer(text_of(data.get("content")).strip(), at)
                for call in map(dict_or_empty, list_or_empty(data.get("toolRequests"))):
                    self._read_call(call)
            case "tool.execution_complete":
                self._read_result(data, at)

    def _read_prompt(self, name: str, data: dict[str, Any], at: datetime | None) -> None:
        text = text_of(data.get("content")).strip()
        # Other sources are skills, agents and the client itself
        if text and data.get("source") in (None, "", "user") and not data.get("isAutopilotContinuation"):
            self._builder.note(at)
            self._builder.begin(text, at)
            self._prompts.append(name)

    def _rewind(self, data: dict[str, Any]) -> None:
        removed = {data.get("upToEventId"), *filter(None, map(text_of, list_or_empty(data.get("eventIds"))))}
        count = next((at for at, name in enumerate(self._prompts) if name in removed), len(self._prompts))
        self._builder.undo(len(self._prompts) - count)
        del self._prompts[count:]

    def _read_call(self, call: dict[str, Any]) -> None:
        name, arguments = text_of(call.get("toolCallId")), call.get("arguments")
        values = dict_or_empty(arguments)
        tool = call.get("name")
        if tool in _SHELLS:
            self._builder.call(name, text_of(values.get("command")))
        elif tool in ("edit", "create"):
            self._edits[name] = [text_of(values.get("path"))]
        elif tool == "apply_patch":
            self._edits[name] = patched_files(text_of(arguments) or text_of(values.get("input")))

    def _read_result(self, data: dict[str, Any], at: datetime | None) -> None:
        name = text_of(data.get("toolCallId"))
        paths = self._edits.pop(name, [])
        if not data.get("success"):
            return
        for path in paths:
            self._builder.edit(str(Path(self._builder.folder, path)) if path else "")
        text = text_of(dict_or_empty(data.get("result")).get("content"))
        ending = _ENDED.search(text)
        code = exit_code_of(dict_or_empty(data.get("shellExecution")).get("exitCode"))
        if code is None and ending:
            code = int(ending[1])
        self._builder.result(name, text[: ending.start()] if ending else text, code, at)

    def records(self, place: str, broken: list[int]) -> Iterator[Record]:
        return self._builder.records(self._key, place, broken=broken)


COPILOT_CLI = ImportSource(
    "copilot-cli",
    "what Copilot CLI knows: sessions, and instructions of the user",
    _find,
    _read,
    takes="a folder such as ~/.copilot",
    transcripts=_transcripts,
)
