"""Parse the JSON of a client's hook by the client's table; any part of it may be missing or of another type."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memoryhub.config.identity import identify_project
from memoryhub.core.errors import Invalid, NotFound
from memoryhub.core.text import flat
from sessions_app.events.client import TOOL_MESSAGE
from sessions_app.hook_clients import (
    CLIENTS,
    Becomes,
    Change,
    Client,
    Constant,
    Effect,
    ExitCode,
    Hook,
    Source,
    Texts,
    Value,
)
from sessions_app.transcript import LAST_MESSAGE, last_assistant_message

_EXIT_CODE = re.compile(
    r"(?:exit(?:ed with)?(?: non-zero)?(?: status)? code|exit code|exit status)\D{0,3}(\d{1,3})\b", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class HookEvent:
    """A parsed hook event: its effect, session, folder, and the type and payload of the event to append."""

    effect: Effect
    answers: bool
    session_id: str
    directory: str
    reason: str
    type: str
    # Empty if nothing is appended.
    payload: dict[str, Any]


def parse_hook(*, client: str, event: str, data: Mapping[str, Any]) -> HookEvent:
    """Parse the JSON that a client passed to a hook.

    Raises:
        NotFound: the client or its event is unknown; the data lists the known ones.
        Invalid: the session is missing.
    """
    table = _table(client)
    hook = _hook(table, client, event)
    data = _in_whole_characters(data)
    session = flat(_word(_at(data, table.session)).strip())
    if not session and hook.effect is not Effect.NOTHING:
        raise Invalid(f"{table.session!r} is missing in the data from {client}; it names the session")
    if event == "Stop" and not data.get(LAST_MESSAGE):
        data = {**data, LAST_MESSAGE: last_assistant_message(data.get("transcript_path"))}
    becomes = hook.by_tool.get(_word(_at(data, table.tool)), hook.becomes)
    payload = {} if becomes is None else _payload(becomes, data)
    return HookEvent(
        effect=hook.effect,
        answers=hook.answers,
        session_id=session[:200],
        directory=_folder(_at(data, table.directory)),
        reason=flat(_word(_at(data, table.reason)))[:100],
        type=becomes.type if becomes else "",
        payload=payload,
    )


def project_of(event: HookEvent, project: str | None) -> str:
    """Return the named project, or that of the event's folder."""
    if not project and not event.directory.startswith("/"):
        raise Invalid("the event names no folder, so its project is unknown; send 'cwd', or name the project")
    return identify_project(project=project or None, directory=Path(event.directory or "/"))


# Clients in JavaScript may cut a text inside a surrogate pair; the halves become question marks.
def _in_whole_characters(data: Mapping[str, Any]) -> Mapping[str, Any]:
    text = json.dumps(data, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        whole: dict[str, Any] = json.loads(text.encode("utf-8", "replace"))
        return whole
    return data


def _table(client: str) -> Client:
    table = CLIENTS.get(client)
    if table is None:
        raise NotFound(f"{client!r} is not a known client; known are: {', '.join(CLIENTS)}", known=list(CLIENTS))
    return table


def _hook(table: Client, client: str, event: str) -> Hook:
    hook = table.hooks.get(event)
    if hook is None:
        known = ", ".join(table.hooks)
        raise NotFound(f"{client} has no known hook {event!r}; known are: {known}", known=list(table.hooks))
    return hook


# An event in which one of these is empty is not recorded.
_NEEDED = {"content", "command", "path", "tool"}


def _payload(becomes: Becomes, data: Mapping[str, Any]) -> dict[str, Any]:
    found = {name: _value(source, data) for name, source in becomes.fields.items()}
    if any(not found[name] for name in _NEEDED & set(found) if name != "tool" or becomes.type == TOOL_MESSAGE.name):
        return {}
    return {name: value for name, value in found.items() if value not in (None, "")}


def _value(source: Source, data: Mapping[str, Any]) -> Any:
    match source:
        case Texts(sources, longest):
            return _cut("\n".join(filter(None, (_text(_at(data, path)) for path in sources))), longest)
        case Change():
            return _cut(_changes(source, data), source.longest)
        case Value(path, longest):
            return _bounded(_at(data, path), longest)
        case ExitCode(sources, text):
            numbers = [value for path in sources if type(value := _at(data, path)) is int]
            return numbers[0] if numbers else _exit_code(_text(_at(data, text)))
        case Constant(value):
            return value


def _at(data: Any, path: str) -> Any:
    for name in path.split("."):
        data = data.get(name) if isinstance(data, Mapping) else None
    return data


def _word(value: Any) -> str:
    return value if isinstance(value, str) else ""


# A path that no file system accepts becomes "", so that the event itself is kept.
def _folder(value: Any) -> str:
    path = _word(value)
    return "" if "\0" in path else path


# Parts of a message are joined by line breaks; anything else becomes JSON.
def _text(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, list):
        return "\n".join(filter(None, map(_text, value)))
    if isinstance(value, Mapping) and isinstance(value.get("text"), str):
        return str(value["text"])
    return json.dumps(value, ensure_ascii=False)


def _changes(source: Change, data: Mapping[str, Any]) -> str:
    pairs = _at(data, source.pairs) if source.pairs else [data]
    if not isinstance(pairs, list):
        return ""
    return "\n".join(_changed(_at(pair, source.old), _at(pair, source.new)) for pair in pairs)


def _changed(old: Any, new: Any) -> str:
    lines = [f"- {line}" for line in _text(old).splitlines()] + [f"+ {line}" for line in _text(new).splitlines()]
    return "\n".join(lines)


def _exit_code(text: str) -> int | None:
    found = _EXIT_CODE.search(text)
    return int(found[1]) if found else None


def _bounded(value: Any, longest: int) -> Any:
    shorter = _shortened(value, longest, 6)
    whole = json.dumps(shorter, ensure_ascii=False)
    return shorter if len(whole) <= 4 * longest else _cut(whole, 4 * longest)


def _shortened(value: Any, longest: int, depth: int) -> Any:
    if isinstance(value, str):
        return _cut(value, longest)
    if depth == 0 and isinstance(value, Mapping | list):
        return "[…]"
    if isinstance(value, Mapping):
        return {str(key): _shortened(item, longest, depth - 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_shortened(item, longest, depth - 1) for item in value]
    return value


def _cut(text: str, longest: int) -> str:
    if len(text) <= longest:
        return text
    note = f"\n[… {len(text) - longest} characters left out …]\n"
    kept = longest - len(note)
    return text[: kept * 2 // 3] + note + text[-(kept - kept * 2 // 3) :]
