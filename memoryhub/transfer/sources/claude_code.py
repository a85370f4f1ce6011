"""Source: Claude Code's memory files, instructions and transcripts."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property, partial
from pathlib import Path, PurePosixPath
from typing import Any

from memories.importing.files import modified_at, split_front_matter
from memories.models import RelationType
from memoryhub.config.repository import is_folder, resolved
from memoryhub.core.errors import Invalid
from memoryhub.transfer.records import ImportSource, LeftOutRecord, MemoryRecord, Record, Transcript
from memoryhub.transfer.sources.reading import dict_or_empty, files_below, list_or_empty, message_text, text_of, time_of
from memoryhub.transfer.sources.rule_files import CLAUDE
from memoryhub.transfer.sources.rules import RuleReader, repository_rules
from memoryhub.transfer.sources.texts import (
    Base,
    TextFile,
    part_records,
    read_markdown,
    repository_around,
    section_records,
    wiki_links,
)
from memoryhub.transfer.sources.transcripts import (
    TranscriptBuilder,
    folder_in,
    folder_of_project,
    line_records,
    transcripts_of,
)

_INSTRUCTIONS = ("CLAUDE.md", "CLAUDE.local.md", ".claude/CLAUDE.md", ".claude/rules")
# The types that the tool gives its memories
_KINDS = {
    "user": ("knowledge", "context"),
    "feedback": ("guideline", ""),
    "project": ("knowledge", "context"),
    "reference": ("knowledge", "reference"),
}
_POINTER = re.compile(r"\s*[-*] \[[^\]]*\]\([^)\s]+\.md\).*")


def _find_claude_code(folder: Path) -> list[Path]:
    configs = [path for path in _config_folders() if is_folder(path / "projects") or (path / "CLAUDE.md").is_file()]
    return configs + [top for top in repository_around(folder) if any((top / name).exists() for name in _INSTRUCTIONS)]


def _config_folders() -> list[Path]:
    configured = os.environ.get("CLAUDE_CONFIG_DIR")
    return [resolved(Path(folder)) for folder in (configured, Path.home() / ".claude") if folder]


def _read_claude_code(path: Path) -> Iterator[Record]:
    folder = resolved(path)
    if _is_config(folder):
        return _read_config(folder, "")
    if folder.parent.name == "projects" and _is_config(folder.parent.parent):
        return _read_config(folder.parent.parent, folder.name)
    return repository_rules(folder, CLAUDE, named="CLAUDE.md, and nothing else of Claude Code,")


# Its folders of projects are named by whole paths, with a dash for each sign: ``-srv-harbour``, ``C--harbour``
def _is_config(folder: Path) -> bool:
    names = [f"projects/{start}/{name}" for start in ("-*", "?--*") for name in ("*.jsonl", "memory/*.md")]
    return folder in _config_folders() or any(next(folder.glob(name), None) for name in names)


def _read_config(folder: Path, only: str) -> Iterator[Record]:
    memory: _Memory | None = None
    top = "~/.claude" if folder.name == ".claude" else folder.name
    instructions = RuleReader(Base(folder, top))
    files = files_below(
        folder,
        includes=lambda path: _wants(path, only),
        enters=lambda path: _enters(path, only),
        reads_ignored=True,
    )
    for file in files:
        if isinstance(file, LeftOutRecord):
            yield file
            continue
        parts = file.relative_to(folder).parts
        name = "/".join((top, *parts))
        if parts[0] == "projects":
            project = folder / parts[0] / parts[1]
            if memory is None or memory.folder != project:
                memory = _Memory(project)
            yield from memory.records(file, "/".join(parts[1:]))
        else:
            rule = CLAUDE[0] if file.name == "CLAUDE.md" else CLAUDE[-1]
            yield from instructions.records(TextFile(file, name, name, changed=modified_at(file)), rule)


def _wants(path: PurePosixPath, only: str) -> bool:
    match path.parts:
        case ("projects", _, "memory", *_) | ("rules", *_):
            return path.suffix == ".md"
    return path.parts == ("CLAUDE.md",) and not only


def _is_transcript(path: PurePosixPath, only: str) -> bool:
    is_listed = len(path.parts) == 2 and only in ("", path.parts[0])
    return is_listed and path.suffix == ".jsonl" and not path.name.startswith("agent-")


def _enters(path: PurePosixPath, only: str) -> bool:
    match path.parts:
        case ("projects",):
            return True
        case ("projects", project):
            return only in ("", project)
        case ("projects", _, "memory", *_):
            return True
    return path.parts[0] == "rules" and not only


@dataclass
class _Memory:
    """The memory of one project: files with one fact each, and their list in MEMORY.md."""

    folder: Path

    def records(self, path: Path, name: str) -> Iterator[Record]:
        file = TextFile(path, name, path.name, kind="observation", project=self._project, changed=modified_at(path))
        try:
            matter, body = split_front_matter(read_markdown(path))
        except Invalid as error:
            yield LeftOutRecord(str(path), error.message)
            return
        if path.name == "MEMORY.md" or "name" not in matter:
            yield from self._sections(file)
            return
        type_name = _detail(matter, "type").lower()
        kind, type_of = _KINDS.get(type_name, ("observation", ""))
        session = _detail(matter, "originSessionId")
        title = str(matter.get("description") or matter["name"])
        for record in part_records(replace(file, kind=kind, type=type_of, tags=(type_name,)), "", title, body.strip()):
            yield replace(record, session=session, relations=self._relations(record))

    def _sections(self, file: TextFile) -> Iterator[Record]:
        for record in section_records(file):
            if isinstance(record, MemoryRecord) and all(map(_POINTER.fullmatch, record.content.split("\n"))):
                yield LeftOutRecord(record.place, "it only lists the other files")
            else:
                yield record

    def _relations(self, record: MemoryRecord) -> tuple[tuple[str, str], ...]:
        keys = (self._keys.get(link.note) for link in wiki_links(record.content))
        related = dict.fromkeys(key for key in keys if key and key != record.key)
        return tuple((RelationType.RELATED_TO.value, key) for key in related)

    # By the names in the front matter
    @cached_property
    def _keys(self) -> dict[str, str]:
        keys = {}
        for path in sorted((self.folder / "memory").glob("*.md")):
            try:
                matter, _ = split_front_matter(read_markdown(path))
            except Invalid:
                continue
            if "name" in matter:
                keys[str(matter["name"])] = f"{self.folder.name}/memory/{path.name}"
        return keys

    @cached_property
    def _project(self) -> str:
        return folder_of_project(self.folder, "*.jsonl")


# At the top of the front matter, as older versions have it, or below ``metadata``
def _detail(matter: dict[str, Any], name: str) -> str:
    if value := matter.get(name.lower()):
        return str(value)
    match = re.search(rf"(?:^|\s){name}:\s*([\w-]+)", str(matter.get("metadata", "")))
    return match[1] if match else ""


# What the client puts into messages beside the user's words
_INJECTED = re.compile(
    r"<(system-reminder|ide_opened_file|ide_selection|local-command-(?:caveat|stdout|stderr)|bash-std(?:out|err)"
    r"|task-notification|user-prompt-submit-hook|teammate-message|cross-session-message)\b[^<>]{0,200}>.*?(?:</\1>|\Z)",
    re.DOTALL,
)
_COMMAND = re.compile(r"<(command-name|command-args|bash-input)>((?:(?!<\1>).)*?)</\1>", re.DOTALL)
_INTERRUPTED = "[Request interrupted by user"
# How a result begins whose command failed
_EXIT_CODE = re.compile(r"(?:Error: )?Exit code ([1-9]\d{0,2})\b")
# Tools that change a file
_EDITING = ("Edit", "MultiEdit", "Write", "NotebookEdit")
# Around the summary of a conversation that was compacted
_SUMMARY = re.compile(r"(?:.*?\bSummary:\n)?(.*?)(?:\n\nIf you need specific details.*)?", re.DOTALL)


def _transcripts(path: Path) -> Iterator[Transcript]:
    folder = resolved(path)
    only = ""
    if folder.parent.name == "projects" and _is_config(folder.parent.parent):
        folder, only = folder.parent.parent, folder.name
    elif not _is_config(folder):
        return
    top = folder / "projects"
    if not is_folder(top):
        return
    files = files_below(
        top,
        includes=lambda file: _is_transcript(file, only),
        enters=lambda file: len(file.parts) == 1 and only in ("", file.name),
        # Who keeps their settings in git seldom keeps the transcripts
        reads_ignored=True,
    )
    yield from transcripts_of(files, folder=folder_in, read=partial(line_records, _TranscriptReader))


class _TranscriptReader:
    def __init__(self, path: Path) -> None:
        self._builder = TranscriptBuilder("claude-code")
        self._key = path.stem
        self._titles: dict[str, str] = {}
        # By the last message that they tell of: files have summaries of other sessions too
        self._summaries: dict[str, str] = {}

    def read(self, line: dict[str, Any]) -> None:
        if line.get("isSidechain"):
            return
        self._builder.summary = self._summaries.get(text_of(line.get("uuid")), self._builder.summary)
        at = time_of(line.get("timestamp"))
        match line:
            case {"type": "user", "message": {"content": content}}:
                self._builder.note(at, text_of(line.get("cwd")))
                self._read_user(line, content, at)
                self._read_results(content, at)
            case {"type": "assistant", "message": {"content": content, **message}}:
                self._builder.note(at, text_of(line.get("cwd")))
                self._read_calls(content)
                if message.get("model") != "<synthetic>" and not line.get("isApiErrorMessage"):
                    self._builder.answer(message_text(content), at)
            case {"type": "summary", "summary": str(summary), "leafUuid": str(leaf)}:
                self._summaries[leaf] = summary
            case {"type": "custom-title", "customTitle": str(title)} | {"type": "ai-title", "aiTitle": str(title)}:
                self._titles[line["type"]] = title

    def records(self, place: str, broken: list[int]) -> Iterator[Record]:
        self._builder.title = self._titles.get("custom-title") or self._titles.get("ai-title", "")
        return self._builder.records(self._key, place, broken=broken)

    def _read_user(self, line: dict[str, Any], content: Any, at: datetime | None) -> None:
        text = message_text(content)
        if line.get("isCompactSummary"):
            if match := _SUMMARY.fullmatch(text):
                self._builder.summary = match[1].strip()
        elif not line.get("isMeta") and not text.startswith(_INTERRUPTED):
            text = _INJECTED.sub("", text).strip()
            is_wrapped = text.startswith(("<command-", "<bash-input>"))
            command = {name: value.strip() for name, value in _COMMAND.findall(text if is_wrapped else "")}
            prompt = text
            if "bash-input" in command:
                prompt = f"! {command['bash-input']}"
            elif command:
                prompt = f"{command.get('command-name', '')} {command.get('command-args', '')}".strip()
            if prompt:
                self._builder.begin(prompt, at, is_command=bool(command))

    def _read_calls(self, content: Any) -> None:
        for part in map(dict_or_empty, list_or_empty(content)):
            arguments = dict_or_empty(part.get("input"))
            if part.get("type") != "tool_use":
                continue
            if part.get("name") == "Bash":
                self._builder.call(text_of(part.get("id")), text_of(arguments.get("command")))
            elif part.get("name") in _EDITING:
                self._builder.edit(text_of(arguments.get("file_path")) or text_of(arguments.get("notebook_path")))

    def _read_results(self, content: Any, at: datetime | None) -> None:
        for part in map(dict_or_empty, list_or_empty(content)):
            output = message_text(part.get("content"))
            exit_code: int | None = 0
            if part.get("is_error"):
                failure = _EXIT_CODE.match(output)
                exit_code = int(failure[1]) if failure else None
                output = output[failure.end() :].strip() if failure else output
            self._builder.result(text_of(part.get("tool_use_id")), output, exit_code, at)


CLAUDE_CODE = ImportSource(
    "claude-code",
    "what Claude Code knows: memory, CLAUDE.md, rules and the transcripts of sessions",
    _find_claude_code,
    _read_claude_code,
    transcripts=_transcripts,
)
