"""A task of Cline, Roo Code or Kilo Code, which share the form of their files.

``ui_messages.json`` has what the user sees, ``api_conversation_history.json`` what the model got: the exit codes of
commands, but also context that nobody typed.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from memoryhub.core.errors import Invalid
from memoryhub.transfer.records import LeftOutRecord, Record
from memoryhub.transfer.sources.reading import (
    dict_or_empty,
    list_or_empty,
    object_in,
    read_head,
    read_json,
    read_settings,
    text_of,
    time_of,
)
from memoryhub.transfer.sources.transcripts import EXIT_CODE, TranscriptBuilder

_API = "api_conversation_history.json"
# The folder, as the first message to the model names it within JSON
_FOLDER = re.compile(rb'# Current (?:Working|Workspace) Directory \(((?:[^")\\]|\\[^n]){1,4000})\) Files')
_HEAD = 256 * 1024
# The tools with which a model changes a file
_EDITS = (
    *("editedExistingFile", "newFileCreated", "appliedDiff", "appliedDiffs", "insertContent", "searchAndReplace"),
    *("searchReplace", "editFile", "applyPatch", "fileDeleted"),
)
_COMMANDS = ("execute_command", "run_commands")
_RESULT = re.compile(r"\[execute_command for '(.*?)'\] Result:\s*(.*)", re.DOTALL)
_ENVIRONMENT = re.compile(r"<environment_details>.*?(?:</environment_details>|\Z)", re.DOTALL)
# Characters at the start of a result, before the output, in which the client says how the command ended
_REPORT = 1_000
# What Cline adds to a command that needs an approval, and to a result that has changed files
_APPROVAL, _CHANGES = "REQ_APP", "HAS_CHANGES"
History = Mapping[str, Mapping[str, Any]]


def history_of(folder: Path) -> History:
    """Return what the tool's list says of its tasks, by their ids."""
    items: list[Any] = []
    for file in (folder / "state" / "taskHistory.json", folder / "tasks" / "_index.json"):
        try:
            data = read_json(file)
        except Invalid:
            continue
        items += data if isinstance(data, list) else list_or_empty(dict_or_empty(data).get("entries"))
    return {text_of(item.get("id")): item for item in map(dict_or_empty, items)}


def is_subtask(history: History, file: Path | LeftOutRecord) -> bool:
    """Return whether another task has begun this one."""
    return isinstance(file, Path) and bool(text_of(_item(history, file).get("parentTaskId")))


def folder_of(history: History, file: Path) -> str:
    """Return the folder in which a task began, "" if neither the list nor its first message says."""
    item = _item(history, file)
    if folder := text_of(item.get("cwdOnTaskInitialization")) or text_of(item.get("workspace")):
        return folder
    match = _FOLDER.search(read_head(file.with_name(_API), _HEAD))
    if not match:
        return ""
    try:
        return text_of(json.loads(b'"' + match[1] + b'"'))
    except ValueError:
        return ""


def _item(history: History, file: Path) -> Mapping[str, Any]:
    return history.get(file.parent.name) or read_settings(file.with_name("history_item.json"))


def task_records(tool: str, history: History, file: Path) -> Iterator[Record]:
    """Yield the session of a task, and what is left out of it."""
    messages = list_or_empty(read_json(file))
    builder = TranscriptBuilder(tool)
    builder.note(None, folder_of(history, file))
    reader = _TaskReader(builder, _command_runs(file.with_name(_API)))
    for message in map(dict_or_empty, messages):
        if not message.get("partial"):
            reader.read(message)
    yield from builder.records(file.parent.name, str(file))


class _TaskReader:
    def __init__(self, builder: TranscriptBuilder, runs: dict[str, deque[tuple[int | None, str]]]) -> None:
        self._builder = builder
        self._runs = runs
        self._is_begun = False
        self._answer = ""

    def read(self, message: Mapping[str, Any]) -> None:
        kind = text_of(message.get("say")) or text_of(message.get("ask"))
        text = text_of(message.get("text")).strip()
        at = time_of(message.get("ts"))
        self._builder.note(at)
        if kind in ("task", "user_feedback") or (kind == "text" and not self._is_begun):
            if text:
                self._is_begun = True
                self._answer = ""
                self._builder.begin(text, at)
        elif kind in ("text", "completion_result", "followup", "plan_mode_respond"):
            answer = _spoken(text.removesuffix(_CHANGES).strip())
            if answer != self._answer:  # some versions say a result and then ask about it
                self._builder.answer(answer, at)
            self._answer = answer
        elif kind == "command":
            self._read_command(text.removesuffix(_APPROVAL).strip(), at)
        elif kind == "tool":
            self._read_tool(object_in(text))
        elif kind == "condense_context":
            summary = text_of(dict_or_empty(message.get("contextCondense")).get("summary"))
            self._builder.summary = summary or self._builder.summary

    def _read_command(self, command: str, at: datetime | None) -> None:
        runs = self._runs.get(command)
        if runs:
            exit_code, output = runs.popleft()
            self._builder.run(command, output, exit_code, at)

    def _read_tool(self, tool: Mapping[str, Any]) -> None:
        if tool.get("tool") == "summarizeTask":
            self._builder.summary = text_of(tool.get("content")) or self._builder.summary
        if tool.get("tool") in _EDITS:
            changes = map(dict_or_empty, list_or_empty(tool.get("batchDiffs")))
            for change in (tool, *changes):
                self._builder.edit(text_of(change.get("path")))


# A question comes with the choices, as JSON
def _spoken(text: str) -> str:
    value = object_in(text)
    return text_of(value.get("question")) or text_of(value.get("response")) or text


# By command, in their order: the exit code, None if it is not said, and the output
def _command_runs(file: Path) -> dict[str, deque[tuple[int | None, str]]]:
    try:
        messages = list_or_empty(read_json(file))
    except Invalid:
        return {}
    runs: dict[str, deque[tuple[int | None, str]]] = {}
    calls: dict[str, str] = {}
    for message in map(dict_or_empty, messages):
        parts = list(map(dict_or_empty, list_or_empty(message.get("content"))))
        for part in parts:
            if part.get("type") == "tool_use" and part.get("name") in _COMMANDS:
                calls[text_of(part.get("id"))] = text_of(dict_or_empty(part.get("input")).get("command"))
        if message.get("role") == "user":
            for command, output in _results(parts, calls):
                runs.setdefault(command.strip(), deque()).append(_run(output))
    return runs


def _results(parts: Iterable[Mapping[str, Any]], calls: dict[str, str]) -> Iterator[tuple[str, str]]:
    texts = []
    for part in parts:
        if part.get("type") == "tool_result":
            content = part.get("content")
            inner = map(dict_or_empty, list_or_empty(content))
            text = text_of(content) or "\n".join(text_of(item.get("text")) for item in inner)
            yield calls.pop(text_of(part.get("tool_use_id")), ""), text
        else:
            texts.append(text_of(part.get("text")))
    # Models without tools of their own write calls as text
    if match := _RESULT.match(_ENVIRONMENT.sub("", "\n".join(texts)).strip()):
        yield match[1], match[2]


def _run(result: str) -> tuple[int | None, str]:
    report, _, output = result.partition("Output:\n")
    exit_code = EXIT_CODE.search(report[:_REPORT])
    return int(exit_code[1]) if exit_code else None, (output or report).strip()
