"""Parse the JSON of a client's hook by the client's table, and find the commits that its command made."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from memoryhub.config.clients import Command, Edit, Hook, Hooks, hook_clients
from memoryhub.config.hook_json import hook_answer, with_last_message
from memoryhub.config.hook_json import value_at as _at
from memoryhub.config.hook_table import ASK, HookEffect
from memoryhub.config.identity import begin_session, identify_project, peek_session, place_session
from memoryhub.config.repository import find_repository, resolved
from memoryhub.core import clock
from memoryhub.core.errors import Invalid, NotFound, Unavailable
from memoryhub.core.session_places import ROOT_KEY, find_place, session_name
from memoryhub.core.text import flat
from sessions_app import git
from sessions_app.events.client import COMMAND_RUN, FILE_EDITED, TOOL_MESSAGE
from sessions_app.schemas import CommitRecord

# Set at the end of a turn that a hook has prolonged
_WAS_ASKED = "stop_hook_active"
_EXIT_CODE = re.compile(
    r"(?:exit(?:ed with)?(?: non-zero)?(?: status)? code|exit code|exit status)\D{0,3}(\d{1,3})\b", re.IGNORECASE
)
# The first file of a patch in the format of Codex.
_PATCHED = re.compile(r"^\*\*\* (?:Add|Update|Delete) File: (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class HookEvent:
    """A parsed hook event: its effect, session, folders, and the type and payload of the event to append."""

    effect: HookEffect
    # Whether the client adds the answer to its model's context.
    answers: bool
    session_id: str
    # Where the session began, once the event is placed; until then the root that the client names, or its folder.
    directory: str
    # Where the client works now.
    working_directory: str
    reason: str
    type: str
    # Empty if nothing is appended.
    payload: dict[str, Any]
    # Why the client starts a session, such as "resume", "clear" or "compact".
    start: str = ""
    # The session that its window was in before it was cleared.
    continued: str = ""
    # What a tool wrote as the whole content of a file.
    written: str = ""


def parse_hook(*, client: str, event: str, data: Mapping[str, Any], is_remote: bool = False) -> HookEvent:
    """Parse the JSON that a client passed to a hook. Of a client on another machine, no file is read.

    Raises:
        NotFound: the client or its event is unknown; the data lists the known ones.
        Invalid: the session is missing.
    """
    table = _table(client)
    data = _in_whole_characters(data)
    hook = table.find(event)
    if hook is None:
        names = [*table.events, *table.ignored]
        raise NotFound(f"{client} has no known hook {event!r}; known are: {', '.join(names)}", known=names)
    if _is_unrecorded(table, hook, data):
        hook = Hook(effect=HookEffect.NOTHING)
    session = session_name(_at(data, table.session))
    if not session and hook.effect.is_handled:
        raise Invalid(f"{table.session!r} is missing in the data from {client}; it names the session")
    if hook.transcript and not is_remote:
        data = with_last_message(data, path=hook.content[0], transcript=hook.transcript)
    event_type, payload = _turn_event(table, hook, data)
    if not next(iter(payload.values()), ""):
        payload = {}
    folder = _folder(_at(data, table.directory))
    return HookEvent(
        effect=hook.effect,
        answers=bool(hook.effect.answer) and hook.takes_context and not _at(data, _WAS_ASKED),
        session_id=session,
        directory=_folder(_at(data, ROOT_KEY)) or folder,
        working_directory=folder,
        reason=flat(_word(_at(data, table.reason)))[:100],
        type=event_type,
        payload={name: value for name, value in payload.items() if value not in (None, "")},
        start=_word(_at(data, table.start)) if hook.effect is HookEffect.START else "",
        written=_written_content(table, hook, data),
    )


def place_event(event: HookEvent, *, client: str, project: str | None) -> tuple[str, HookEvent]:
    """Return the project of an event, the named one or that of its session, and the event in the session's folder.

    The first event of a session decides where it began, and notes it.

    Raises:
        NotFound: the session began in a folder that has no project.
        Invalid: the event names no folder, several projects are possible, or a settings file cannot be read.
    """
    folder = _absolute(event.directory)
    if project:
        project = identify_project(project=project, directory=Path("/"))
        if folder:
            folder = begin_session(client, event.session_id, folder).folder
        return project, replace(event, directory=folder)
    if not folder and find_place(client, event.session_id) is None:
        raise Invalid("the event names no folder, so its project is unknown; send 'cwd', or name the project")
    place = place_session(client, event.session_id, folder)
    return place.project, replace(event, directory=place.folder)


def owner_of(event: HookEvent, *, client: str, project: str) -> str:
    """Return the project of an event that is not captured yet, "" if it is unknown."""
    return project or peek_session(client, event.session_id, _absolute(event.directory) or "/").project


# A relative folder means nothing here
def _absolute(folder: str) -> str:
    return folder if folder.startswith("/") else ""


# Clients in JavaScript may cut a text inside a surrogate pair; the halves become question marks.
def _in_whole_characters(data: Mapping[str, Any]) -> Mapping[str, Any]:
    text = json.dumps(data, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        whole: dict[str, Any] = json.loads(text.encode("utf-8", "replace"))
        return whole
    return data


def _table(client: str) -> Hooks:
    clients = hook_clients()
    if client not in clients:
        raise NotFound(f"{client!r} is not a known client; known are: {', '.join(clients)}", known=list(clients))
    return clients[client]


# A sub-agent works in its session's turn, so only its tools are recorded: its prompt and its answer are those of the
# tool that started it.
def _is_unrecorded(table: Hooks, hook: Hook, data: Mapping[str, Any]) -> bool:
    if _word(_at(data, table.agent)) and not hook.effect.is_tool:
        return True
    texts = {path: _word(_at(data, path)) for path in table.skipped}
    return any(text and table.skipped[path] in text.lower() for path, text in texts.items())


# Type and payload of the event to append; if the payload's first field is empty, the event is not recorded.
def _turn_event(table: Hooks, hook: Hook, data: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    if not hook.effect.is_tool:
        content = _texts_at(data, hook.content, 50_000)
        if hook.echo:
            content = re.sub(rf"<{hook.echo}>.*?</{hook.echo}>\s*", "", content, flags=re.DOTALL)
        return hook.type, {"content": content}
    tool, agent = _word(_at(data, table.tool)), {"agent_id": _texts_at(data, (table.agent,), 200)}
    if tool in hook.commands:
        return COMMAND_RUN.name, _command_payload(table, hook.commands[tool], data) | agent
    if tool in hook.edits:
        return FILE_EDITED.name, _edit(table, hook.edits[tool], data) | agent
    if tool in table.unrecorded:
        return TOOL_MESSAGE.name, {}
    call = {
        "tool": _texts_at(data, (table.tool,), 200),
        "call_id": _texts_at(data, (table.call,), 200),
        "input": _bounded(_at(data, table.input)),
        "output": _bounded(_at(data, hook.result)),
        "is_error": hook.is_error,
    }
    return TOOL_MESSAGE.name, call | agent


def _command_payload(table: Hooks, tool: Command, data: Mapping[str, Any]) -> dict[str, Any]:
    codes = [code for path in tool.exit_code if type(code := _at(data, path)) is int]
    match = _EXIT_CODE.search(_as_text(_at(data, tool.exit_text)))
    if match:
        codes.append(int(match[1]))
    return {
        "command": _texts_at(data, (tool.command,), 10_000),
        "output": _texts_at(data, tool.output, 8_000),
        "exit_code": next(iter(codes), None),
        "directory": _texts_at(data, (table.directory,), 4_000),
    }


def _edit(table: Hooks, tool: Edit, data: Mapping[str, Any]) -> dict[str, Any]:
    path = _texts_at(data, (tool.path,), 4_000)
    patch = _text_at(data, tool.patch)
    if file := _PATCHED.search(patch):
        path = _cut_text(file[1].strip(), 4_000)
    change = patch or _text_at(data, tool.text)
    if not change and not tool.text:
        change = _edits_of_pairs(tool, data)
    return {"path": path, "change": _cut_text(change, 4_000), "tool": _texts_at(data, (table.tool,), 200)}


def _written_content(table: Hooks, hook: Hook, data: Mapping[str, Any]) -> str:
    tool = hook.edits.get(_word(_at(data, table.tool)))
    if tool is None or not tool.text:
        return ""
    return _word(_at(data, tool.text))


# The texts at these paths, one per line; absent ones are skipped.
def _texts_at(data: Mapping[str, Any], paths: tuple[str, ...], longest: int) -> str:
    return _cut_text("\n".join(filter(None, (_as_text(_at(data, path)) for path in paths))), longest)


# "" for a tool without such a path.
def _text_at(data: Mapping[str, Any], path: str) -> str:
    return _as_text(_at(data, path)) if path else ""


def _word(value: Any) -> str:
    return value if isinstance(value, str) else ""


# A path that no file system accepts becomes "", so that the event itself is kept.
def _folder(value: Any) -> str:
    if not isinstance(value, str) or "\0" in value:
        return ""
    return value


# Parts of a message are joined by line breaks; anything else becomes JSON.
def _as_text(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, list):
        return "\n".join(filter(None, map(_as_text, value)))
    if isinstance(value, Mapping) and isinstance(value.get("text"), str):
        return str(value["text"])
    return json.dumps(value, ensure_ascii=False)


def _edits_of_pairs(tool: Edit, data: Mapping[str, Any]) -> str:
    pairs = _at(data, tool.pairs) if tool.pairs else [data]
    if not isinstance(pairs, list):
        return ""
    edits = []
    for pair in pairs:
        lines = [f"- {line}" for line in _as_text(_at(pair, tool.old)).splitlines()]
        lines += [f"+ {line}" for line in _as_text(_at(pair, tool.new)).splitlines()]
        edits.append("\n".join(lines))
    return "\n".join(edits)


# Texts are cut to ``longest`` characters, the whole to four times as many.
def _bounded(value: Any, longest: int = 2_000) -> Any:
    shorter = _shortened(value, longest, 6)
    whole = json.dumps(shorter, ensure_ascii=False)
    if len(whole) <= 4 * longest:
        return shorter
    return _cut_text(whole, 4 * longest)


def _shortened(value: Any, longest: int, depth: int) -> Any:
    if isinstance(value, str):
        return _cut_text(value, longest)
    if depth == 0 and isinstance(value, Mapping | list):
        return "[…]"
    if isinstance(value, Mapping):
        return {str(key): _shortened(item, longest, depth - 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_shortened(item, longest, depth - 1) for item in value]
    return value


def _cut_text(text: str, longest: int) -> str:
    if len(text) <= longest:
        return text
    note = f"\n[… {len(text) - longest} characters left out …]\n"
    length = longest - len(note)
    return text[: length * 2 // 3] + note + text[-(length - length * 2 // 3) :]


def answer_for_client(client: str, event: str, text: str) -> dict[str, Any]:
    """Return what a hook prints so that the client adds ``text`` to its model's context."""
    table = _table(client)
    hook = table.find(event)
    return hook_answer(table.answer, event, text, is_question=hook is not None and hook.effect.answer == ASK)


logger = logging.getLogger(__name__)

_COMMITS = re.compile(r"\bgit\b[^|;&\n]*\bcommit\b")
# git's message for a new commit: `[main 1a2b3c4] Subject`.
_NEW_COMMIT = re.compile(r"^\[[^\]\n]*\b([0-9a-f]{7,64})\]", re.MULTILINE)
_MOST = 50
_JUST_NOW = timedelta(minutes=5)


def find_commits(event: HookEvent) -> list[CommitRecord]:
    """Return the commits of a command with ``git commit``; none if git cannot say, or in another repository.

    A session may work in a nested repository, a submodule or a copy of something else: these have other projects.
    """
    if event.type != COMMAND_RUN.name or not _COMMITS.search(event.payload.get("command", "")):
        return []
    if not event.working_directory or not _is_of_session(event):
        return []
    folder = Path(event.working_directory)
    try:
        # A program's output may say so any number of times, and each costs git a look
        shas = dict.fromkeys(_NEW_COMMIT.findall(event.payload.get("output", "")))
        commits = [git.read_commit(folder, sha) for sha in list(shas)[:_MOST]]
        return list(filter(None, commits)) or _latest(folder)
    except Unavailable as error:
        logger.warning("the commits of a command are not recorded: %s", error.message)
        return []


def _is_of_session(event: HookEvent) -> bool:
    session = find_repository(resolved(Path(event.directory or event.working_directory)))
    if session is None:
        return True
    current = find_repository(resolved(Path(event.working_directory)))
    return current is not None and current.common_dir == session.common_dir


# A quiet command prints neither a hash nor a failure: HEAD counts if it is recent.
def _latest(folder: Path) -> list[CommitRecord]:
    last = git.read_commit(folder, "HEAD")
    if last is None or abs(clock.now() - last.committed_at) >= _JUST_NOW:
        return []
    return [last]
