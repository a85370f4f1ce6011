"""The transcript of a session of Claude Code: lines of JSON, of which most are no conversation."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from memoryhub.core.errors import Invalid
from memoryhub.core.text import first_line
from memoryhub.transfer.records import LeftOut, Record, SessionRecord, TurnRecord
from memoryhub.transfer.sources.reading import json_objects

# Turns of a session, and characters of all of them
MAX_TURNS = 10_000
MAX_CHARACTERS = 16 * 2**20
# What the client puts into messages beside the user's words
_INJECTED = re.compile(
    r"<(system-reminder|ide_opened_file|ide_selection|local-command-(?:caveat|stdout|stderr)|bash-std(?:out|err)"
    r"|task-notification|user-prompt-submit-hook|teammate-message|cross-session-message)\b[^<>]{0,200}>.*?(?:</\1>|\Z)",
    re.DOTALL,
)
_COMMAND = re.compile(r"<(command-name|command-args|bash-input)>((?:(?!<\1>).)*?)</\1>", re.DOTALL)
_INTERRUPTED = "[Request interrupted by user"
# Around the summary of a conversation that was compacted
_SUMMARY = re.compile(r"(?:.*?\bSummary:\n)?(.*?)(?:\n\nIf you need specific details.*)?", re.DOTALL)
# Lines that are read to learn the folder of a session
_HEAD = 100


def session_records(path: Path) -> Iterator[Record]:
    """Yield the session of a transcript, and what is left out of it."""
    reader, broken = _Reader(), []
    try:
        for number, line in json_objects(path):
            if line is None:
                broken.append(number)
            elif not line.get("isSidechain"):
                reader.read(line)
    except Invalid as error:
        yield LeftOut(str(path), error.message)
        return
    session = reader.session(path)
    if session.turns:
        yield session
    else:
        yield LeftOut(str(path), "it has no turns")
    if broken:
        yield LeftOut(f"{path}:{broken[0]}", f"lines that are cut off, too long or no JSON: {len(broken)}")
    if reader.beyond:
        yield LeftOut(str(path), f"turns after the first {len(session.turns):,}: {reader.beyond:,}")


def folder_of(path: Path) -> str:
    """Return the folder that a session was in, or "" if the first lines don't say."""
    try:
        for number, line in json_objects(path):
            if line and (folder := _text(line.get("cwd"))):
                return folder
            if number >= _HEAD:
                return ""
    except Invalid:
        pass
    return ""


@dataclass(slots=True)
class _Turn:
    prompt: str
    at: datetime | None
    is_command: bool
    answers: list[str] = field(default_factory=list)
    ended: datetime | None = None


class _Reader:
    def __init__(self) -> None:
        self._turns: list[_Turn] = []
        self._characters = 0
        self._titles: dict[str, str] = {}
        self._summary = ""
        # By the last message that they tell of: files have summaries of other sessions too
        self._summaries: dict[str, str] = {}
        self._folder = ""
        self._started: datetime | None = None
        self._ended: datetime | None = None
        self.beyond = 0

    def read(self, line: dict[str, Any]) -> None:
        self._summary = self._summaries.get(_text(line.get("uuid")), self._summary)
        match line:
            case {"type": "user", "message": {"content": content}}:
                self._read_times(line)
                self._read_user(line, content)
            case {"type": "assistant", "message": {"content": content, **message}}:
                self._read_times(line)
                if message.get("model") != "<synthetic>" and not line.get("isApiErrorMessage"):
                    self._add_answer(_joined(content), _time(line.get("timestamp")))
            case {"type": "summary", "summary": str(summary), "leafUuid": str(leaf)}:
                self._summaries[leaf] = summary
            case {"type": "custom-title", "customTitle": str(title)} | {"type": "ai-title", "aiTitle": str(title)}:
                self._titles[line["type"]] = title

    def session(self, path: Path) -> SessionRecord:
        turns = [turn for turn in self._turns if turn.answers or not turn.is_command]
        first = first_line(turns[0].prompt) if turns else ""
        return SessionRecord(
            key=path.stem,
            purpose=self._titles.get("custom-title") or self._titles.get("ai-title") or first,
            turns=tuple(TurnRecord(turn.prompt, "\n\n".join(turn.answers), turn.at, turn.ended) for turn in turns),
            summary=self._summary,
            agent="claude-code",
            project=self._folder,
            started=self._started,
            ended=self._ended,
            place=str(path),
        )

    def _read_times(self, line: dict[str, Any]) -> None:
        self._folder = self._folder or _text(line.get("cwd"))
        at = _time(line.get("timestamp"))
        self._started, self._ended = self._started or at, at or self._ended

    def _read_user(self, line: dict[str, Any], content: Any) -> None:
        text = _joined(content)
        if line.get("isCompactSummary"):
            found = _SUMMARY.fullmatch(text)
            self._summary = found[1].strip() if found else text
        elif not line.get("isMeta") and not text.startswith(_INTERRUPTED):
            text = _INJECTED.sub("", text).strip()
            is_wrapped = text.startswith(("<command-", "<bash-input>"))
            command = {name: value.strip() for name, value in _COMMAND.findall(text if is_wrapped else "")}
            prompt = _typed(command) if command else text
            if prompt:
                self._begin(_Turn(prompt, _time(line.get("timestamp")), bool(command)))

    def _begin(self, turn: _Turn) -> None:
        self._characters += len(turn.prompt)
        if self.beyond or len(self._turns) >= MAX_TURNS or self._characters > MAX_CHARACTERS:
            self.beyond += 1
        else:
            self._turns.append(turn)

    def _add_answer(self, text: str, at: datetime | None) -> None:
        self._characters += len(text)
        if text and self._turns and not self.beyond and self._characters <= MAX_CHARACTERS:
            self._turns[-1].answers.append(text)
            self._turns[-1].ended = at or self._turns[-1].ended


def _typed(command: dict[str, str]) -> str:
    if "bash-input" in command:
        return f"! {command['bash-input']}"
    return f"{command.get('command-name', '')} {command.get('command-args', '')}".strip()


# Of the parts of a message only the text: no tools, images or thoughts
def _joined(content: Any) -> str:
    if isinstance(content, str):
        return content.strip()
    parts = content if isinstance(content, list) else []
    parts = [part for part in parts if isinstance(part, dict) and part.get("type") == "text"]
    return "\n".join(filter(None, (_text(part.get("text")).strip() for part in parts)))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _time(value: Any) -> datetime | None:
    try:
        at = datetime.fromisoformat(_text(value))
    except ValueError:
        return None
    return at if at.tzinfo else at.replace(tzinfo=UTC)
