"""Sources: the tasks of Cline, Roo Code and Kilo Code in an editor, and the sessions of Cline."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from memoryhub.config.repository import is_folder, resolved
from memoryhub.core.errors import Invalid
from memoryhub.core.text import flat
from memoryhub.transfer.records import ImportSource, LeftOutRecord, Record, Transcript
from memoryhub.transfer.sources import cline_tasks
from memoryhub.transfer.sources.editors import extension_folders
from memoryhub.transfer.sources.memory_bank import has_memory_bank, memory_bank_records
from memoryhub.transfer.sources.reading import (
    dict_or_empty,
    files_below,
    list_or_empty,
    message_text,
    read_json,
    read_settings,
    text_of,
    time_of,
)
from memoryhub.transfer.sources.texts import repository_around
from memoryhub.transfer.sources.transcripts import TranscriptBuilder, transcripts_of

_EXTENSIONS = {
    "cline": "saoudrizwan.claude-dev",
    "roo": "rooveterinaryinc.roo-cline",
    "kilo": "kilocode.kilo-code",
}
_UI = "ui_messages.json"
_MESSAGES = ".messages.json"
# What the client puts around the user's words, and beside them
_INPUT = re.compile(r"<user_input\b[^<>]{0,100}>|</user_input>")
_SLASH = re.compile(r'<user_command slash="([^"<>]{1,100})">')
_INJECTED = re.compile(r"<(mode_notice|file_content|environment_details)\b[^<>]{0,500}>.*?(?:</\1>|\Z)", re.DOTALL)
_CONTINUED = ("[TASK RESUMPTION]", "The user approved switching to act mode.")
_EXIT_CODE = re.compile(r"\[?Command exited with code (\d{1,3})\]?\n?")


def _data_folders(tool: str, folder: Path) -> list[Path]:
    folders = []
    if tool == "cline":
        top = Path(os.environ.get("CLINE_DIR") or Path.home() / ".cline")
        folders.append(Path(os.environ.get("CLINE_DATA_DIR") or top / "data"))
    places = filter(_has_sessions, [*map(resolved, folders), *extension_folders(_EXTENSIONS[tool])])
    return [*places, *filter(has_memory_bank, repository_around(folder))]


def _has_sessions(folder: Path) -> bool:
    return is_folder(folder / "tasks") or is_folder(folder / "sessions")


def _read(tool: str, path: Path) -> Iterator[Record]:
    folder = resolved(path)
    if is_folder(folder) and has_memory_bank(folder):
        yield from memory_bank_records(folder)
    elif not _has_sessions(folder) and not (folder / _UI).is_file():
        raise Invalid(f"{flat(str(path))} has no tasks of {tool}, and no memory-bank")


def _transcripts(tool: str, path: Path) -> Iterator[Transcript]:
    folder = resolved(path)
    if (folder / _UI).is_file():
        folder, only = folder.parent.parent, folder.name
    else:
        only = ""
    if is_folder(folder / "tasks"):
        yield from _tasks(tool, folder, only)
    if is_folder(folder / "sessions") and not only:
        yield from _sessions(tool, folder / "sessions")


def _tasks(tool: str, folder: Path, only: str) -> Iterator[Transcript]:
    history = cline_tasks.history_of(folder)
    files = _files(folder / "tasks", lambda parent, name: name == _UI and only in ("", parent))
    yield from transcripts_of(
        (file for file in files if not cline_tasks.is_subtask(history, file)),
        folder=partial(cline_tasks.folder_of, history),
        read=partial(cline_tasks.task_records, tool, history),
        key=lambda file: file.parent.name,
    )


def _sessions(tool: str, folder: Path) -> Iterator[Transcript]:
    files = _files(folder, lambda parent, name: name == f"{parent}{_MESSAGES}")
    yield from transcripts_of(
        files,
        folder=lambda file: text_of(_manifest_of(file).get("cwd")),
        read=partial(_session_records, tool),
        key=lambda file: file.parent.name,
    )


def _files(folder: Path, wants: Callable[[str, str], bool]) -> Iterator[Path | LeftOutRecord]:
    return files_below(
        folder,
        includes=lambda path: len(path.parts) == 2 and wants(*path.parts),
        enters=lambda path: len(path.parts) == 1,
        reads_ignored=True,
    )


def _manifest_of(file: Path) -> dict[str, Any]:
    return read_settings(file.with_name(f"{file.parent.name}.json"))


def _session_records(tool: str, file: Path) -> Iterator[Record]:
    data = dict_or_empty(read_json(file))
    manifest = _manifest_of(file)
    details = dict_or_empty(manifest.get("metadata"))
    if text_of(dict_or_empty(data.get("origin")).get("mode")) not in ("", "user"):
        return
    repeated = _messages_of(file, text_of(dict_or_empty(details.get("fork")).get("forkedFromSessionId")))
    builder = TranscriptBuilder(tool)
    builder.title = text_of(details.get("title"))
    builder.note(time_of(manifest.get("started_at")), text_of(manifest.get("cwd")))
    for message in map(dict_or_empty, list_or_empty(data.get("messages"))):
        if text_of(message.get("id")) not in repeated:
            _read_message(builder, message)
    builder.note(time_of(manifest.get("ended_at")))
    yield from builder.records(file.parent.name, str(file))


# A fork begins with the messages of the session that it was made from
def _messages_of(file: Path, session: str) -> set[str]:
    if not session or Path(session).name != session:
        return set()
    try:
        data = dict_or_empty(read_json(file.parent.parent / session / f"{session}{_MESSAGES}"))
    except Invalid:
        return set()
    messages = map(dict_or_empty, list_or_empty(data.get("messages")))
    return {text_of(message.get("id")) for message in messages} - {""}


def _read_message(builder: TranscriptBuilder, message: Mapping[str, Any]) -> None:
    at = time_of(message.get("ts"))
    builder.note(at)
    parts = list(map(dict_or_empty, list_or_empty(message.get("content"))))
    text = message_text(message.get("content"))
    if message.get("role") == "assistant":
        builder.answer(text, at)
        for part in parts:
            _read_call(builder, part)
        return
    details = dict_or_empty(message.get("metadata"))
    if details.get("kind") in ("compaction", "compaction_summary"):
        builder.summary = text or builder.summary
    elif message.get("role") == "user" and not details.get("kind") and not details.get("displayRole"):
        prompt, is_command = _prompt_of(text)
        if prompt:
            builder.begin(prompt, at, is_command=is_command)
    for part in parts:
        if part.get("type") == "tool_result":
            _read_results(builder, part, message)


def _prompt_of(text: str) -> tuple[str, bool]:
    if command := _SLASH.search(text):
        return f"/{command[1].lstrip('/')}", True
    prompt = _INPUT.sub("", _INJECTED.sub("", text)).strip()
    return ("" if prompt.startswith(_CONTINUED) else prompt), False


# One call runs several commands, each with a result of its own
def _read_call(builder: TranscriptBuilder, part: Mapping[str, Any]) -> None:
    arguments = dict_or_empty(part.get("input"))
    if part.get("type") != "tool_use":
        return
    if part.get("name") == "run_commands":
        for number, command in enumerate(list_or_empty(arguments.get("commands"))):
            builder.call(f"{part.get('id')}:{number}", text_of(command))
    elif part.get("name") == "editor":
        builder.edit(text_of(arguments.get("path")))


def _read_results(builder: TranscriptBuilder, part: Mapping[str, Any], message: Mapping[str, Any]) -> None:
    results = part.get("content")
    if isinstance(results, str):
        try:
            results = json.loads(results)
        except (ValueError, RecursionError):
            return
    for number, result in enumerate(map(dict_or_empty, list_or_empty(results))):
        output = text_of(result.get("result"))
        failure = _EXIT_CODE.search(text_of(result.get("error")) or output[:100])
        exit_code = None
        if result.get("success") is True:
            exit_code = 0
        elif failure:
            exit_code = int(failure[1])
        call = f"{part.get('tool_use_id')}:{number}"
        builder.result(call, _EXIT_CODE.sub("", output, count=1).strip(), exit_code, time_of(message.get("ts")))


def _source(tool: str, name: str, takes: str) -> ImportSource:
    return ImportSource(
        tool,
        f"the sessions of {name}, and the memory bank of a repository",
        partial(_data_folders, tool),
        partial(_read, name),
        takes=takes,
        transcripts=partial(_transcripts, tool),
    )


_STORAGE = "the folder {} in an editor's globalStorage, or a repository with a memory-bank"
CLINE = _source("cline", "Cline", f"~/.cline/data, or {_STORAGE.format(_EXTENSIONS['cline'])}")
ROO = _source("roo", "Roo Code", _STORAGE.format(_EXTENSIONS["roo"]))
KILO = _source("kilo", "Kilo Code", _STORAGE.format(_EXTENSIONS["kilo"]))
