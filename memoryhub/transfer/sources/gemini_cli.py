"""Source: Gemini CLI's sessions, instructions and memories."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from memoryhub.config.repository import working_folder
from memoryhub.core.foreign_files import read_text
from memoryhub.transfer.records import ImportSource, Record, Transcript
from memoryhub.transfer.sources.client_homes import ClientHome, SessionHead, head_text, session_transcripts
from memoryhub.transfer.sources.reading import (
    dict_or_empty,
    files_below,
    list_or_empty,
    message_text,
    read_settings,
    text_of,
    time_of,
)
from memoryhub.transfer.sources.texts import repository_around
from memoryhub.transfer.sources.transcripts import TranscriptBuilder

_HOME = ClientHome("Gemini CLI", "~/.gemini", ("tmp", "GEMINI.md"))
# In the first line, where the quotes of a message have backslashes before them
_SESSION = re.compile(r'"sessionId":\s*"([^"\\]{1,200})"')
_SUB_AGENT = re.compile(r'"kind":\s*"subagent"')
# What the client puts into the user's messages
_INJECTED = re.compile(
    r"<(session_context|hook_context)>.*?(?:</\1>|\Z)"
    r"|--- Content from referenced files ---.*?(?:--- End of content ---|\Z)"
    r"|This is the (?:Gemini CLI|Qwen Code)\. We are setting up the context.*\Z"
    r"|Here is (?:the|a summary of changes in the) user's editor context.*\Z"
    r"|\A\s*(?:System: )?Please continue\.\s*\Z",
    re.DOTALL,
)
SNAPSHOT = re.compile(r"<state_snapshot>(.*?)(?:</state_snapshot>|\Z)", re.DOTALL)
_EXIT_CODE = re.compile(r"^Exit Code: (\d{1,9})$", re.MULTILINE)
_OUTPUT = re.compile(
    r"^(?:Output|Stdout): (.*?)\n?(?:^(?:Stderr|Error|Exit Code|Signal|Background PIDs|Process Group PGID): |\Z)",
    re.MULTILINE | re.DOTALL,
)
_EDITING = ("replace", "write_file", "edit")


def _find(_: Path) -> list[Path]:
    return _HOME.find(Path(os.environ.get("GEMINI_CLI_HOME") or Path.home()) / ".gemini")


def _read(path: Path) -> Iterator[Record]:
    home = _HOME.check(path)
    projects = _Projects(home)
    return _HOME.texts(
        home,
        includes=lambda file: file.as_posix() == "GEMINI.md" or file.match("tmp/*/memory/*.md"),
        enters=lambda file: file.as_posix() == "tmp" or file.match("tmp/*") or file.match("tmp/*/memory"),
        project=lambda file: projects.folder_of(file.parent.parent.name) if file.parent != home else "",
    )


def _transcripts(path: Path) -> Iterator[Transcript]:
    home = _HOME.check(path)
    projects = _Projects(home)
    files = files_below(
        home,
        includes=lambda file: file.name.startswith("session-") and file.suffix in (".json", ".jsonl"),
        enters=lambda file: file.as_posix() == "tmp" or file.match("tmp/*") or file.match("tmp/*/chats"),
        reads_ignored=True,
    )

    def folder_of(file: Path) -> str:
        return projects.folder_of(file.parent.parent.name)

    return session_transcripts(
        files,
        head=lambda file: session_head(file, folder_of(file)),
        reader=lambda file: ChatReader("gemini-cli", file, folder_of(file)),
    )


def session_head(path: Path, folder: str) -> SessionHead | None:
    """Read the head of a chat; None if it is a sub-agent's."""
    head = head_text(path)
    if _SUB_AGENT.search(head):
        return None
    match = _SESSION.search(head)
    return SessionHead(match[1] if match else path.stem, folder)


class _Projects:
    """The folders that the client worked in, by the names that it gives them below ``tmp``."""

    def __init__(self, home: Path) -> None:
        self._home = home
        names = dict_or_empty(read_settings(home / "projects.json").get("projects"))
        self._folders = {name: folder for folder, name in names.items() if isinstance(name, str)}
        # Older versions have hashes of the paths, and no list of them
        current = [working_folder(), *repository_around(working_folder())]
        for folder in (*names, *read_settings(home / "trustedFolders.json"), *map(str, current)):
            self._folders.setdefault(sha256(folder.encode("utf-8", "surrogatepass")).hexdigest(), folder)

    def folder_of(self, name: str) -> str:
        return read_text(str(self._home / "tmp" / name / ".project_root")).strip() or self._folders.get(name, "")


class ChatReader:
    """Reads a chat of Gemini CLI, or of the versions of Qwen Code that store the same."""

    def __init__(self, agent: str, path: Path, folder: str) -> None:
        self._builder = TranscriptBuilder(agent)
        self._builder.folder = folder
        self._key = path.stem
        # Messages, with the number of turns before each; a message is written again when it has grown
        self._turns: dict[str, int] = {}
        self._begun = 0
        self._answered: set[str] = set()
        self._ended: set[str] = set()
        self._is_sub_agent = False

    def read(self, line: dict[str, Any]) -> None:
        update = dict_or_empty(line.get("$set"))
        self._key = text_of(line.get("sessionId")) or self._key
        self._is_sub_agent = self._is_sub_agent or line.get("kind") == "subagent"
        self._builder.title = text_of(line.get("summary")) or text_of(update.get("summary")) or self._builder.title
        if rewound := text_of(line.get("$rewindTo")):
            self._rewind(rewound)
        if "sessionId" in line:
            self._builder.note(time_of(line.get("startTime")))
        # When a session is resumed or shortened, what its model sees is written again, with other times
        is_repeated = bool(self._turns)
        for message in map(dict_or_empty, list_or_empty(update.get("messages"))):
            self._read_snapshot(message)
            if not is_repeated:
                self._read_message(message)
        for message in map(dict_or_empty, list_or_empty(line.get("messages"))):
            self._read_message(message)
        self._read_message(line)

    def _read_message(self, message: dict[str, Any]) -> None:
        name, at = text_of(message.get("id")), time_of(message.get("timestamp"))
        if not name or self._is_sub_agent:
            return
        if message.get("type") == "user":
            prompt = _prompt(message)
            if prompt and name not in self._turns:
                self._turns[name] = self._begun
                self._begun += 1
                self._builder.note(at)
                self._builder.begin(prompt, at, is_command=prompt.startswith(("/", "?")))
        elif message.get("type") == "gemini":
            self._turns.setdefault(name, self._begun)
            self._builder.note(at)
            answer = message_text(message.get("content"))
            if answer and name not in self._answered:
                self._answered.add(name)
                self._builder.answer(answer, at)
            for call in map(dict_or_empty, list_or_empty(message.get("toolCalls"))):
                self._read_call(call, at)

    def _read_call(self, call: dict[str, Any], at: datetime | None) -> None:
        name, arguments = text_of(call.get("id")), dict_or_empty(call.get("args"))
        if name in self._ended or call.get("status") != "success":
            return
        self._ended.add(name)
        if call.get("name") == "run_shell_command":
            output, code = shell_outcome(_response(call.get("result")), call.get("resultDisplay"))
            self._builder.run(text_of(arguments.get("command")), output, code, time_of(call.get("timestamp")) or at)
        elif call.get("name") in _EDITING:
            self._builder.edit(text_of(arguments.get("file_path")))

    def _read_snapshot(self, message: dict[str, Any]) -> None:
        if match := SNAPSHOT.search(message_text(message.get("content"))):
            self._builder.summary = match[1].strip()

    def _rewind(self, name: str) -> None:
        if name in self._turns:
            turns = self._turns[name]
            self._builder.undo(self._begun - turns)
            self._begun = turns

    def records(self, place: str, broken: list[int]) -> Iterator[Record]:
        return self._builder.records(self._key, place, broken=broken)


def _response(results: Any) -> str:
    parts = [dict_or_empty(dict_or_empty(part).get("functionResponse")) for part in list_or_empty(results)]
    return "\n".join(text_of(dict_or_empty(part.get("response")).get("output")) for part in parts)


def shell_outcome(text: str, display: Any) -> tuple[str, int | None]:
    """Return the output and the exit code of a command from the text that the model got; the code is left out if 0."""
    code, result = _EXIT_CODE.search(text), _OUTPUT.search(text)
    output = result[1] if result else text
    if isinstance(display, str):
        output = display
    if code:
        return output, int(code[1])
    if result is None or "\nSignal: " in text:
        return output, None
    return output, 0


def clean_prompt(text: str) -> str:
    """Return the user's words, without what the client adds to them."""
    return SNAPSHOT.sub("", _INJECTED.sub("", text)).strip()


def _prompt(message: dict[str, Any]) -> str:
    return clean_prompt(message_text(message.get("displayContent")) or message_text(message.get("content")))


GEMINI_CLI = ImportSource(
    "gemini-cli",
    "what Gemini CLI knows: sessions, GEMINI.md of the user, and its memories",
    _find,
    _read,
    takes="a folder such as ~/.gemini",
    transcripts=_transcripts,
)
