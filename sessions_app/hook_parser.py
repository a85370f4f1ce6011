"""Read what a client tells at a hook, by the client's table; everything in it may be absent or of another type."""

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
    """What a client told: what it does, in which session and folder, and the turn's event that it becomes."""

    effect: Effect
    answers: bool
    session_id: str
    directory: str
    reason: str
    type: str
    payload: dict[str, Any]
    """Empty where there is nothing to append."""


def parse_hook(*, client: str, event: str, told: Mapping[str, Any]) -> HookEvent:
    """Return what a client told.

    Raises:
        NotFound: the client or its event is not known; the data names those that are.
        Invalid: it does not name its session.
    """
    table = _table(client)
    hook = _hook(table, client, event)
    told = _in_whole_characters(told)
    session = flat(_word(_at(told, table.session)).strip())
    if not session and hook.effect is not Effect.NOTHING:
        raise Invalid(f"{table.session!r} is missing in what {client} told; it names the session")
    if event == "Stop" and not told.get(LAST_MESSAGE):
        told = {**told, LAST_MESSAGE: last_assistant_message(told.get("transcript_path"))}
    becomes = hook.by_tool.get(_word(_at(told, table.tool)), hook.becomes)
    payload = {} if becomes is None else _payload(becomes, told)
    return HookEvent(
        effect=hook.effect,
        answers=hook.answers,
        session_id=session[:200],
        directory=_folder(_at(told, table.directory)),
        reason=flat(_word(_at(told, table.reason)))[:100],
        type=becomes.type if becomes else "",
        payload=payload,
    )


def project_of(heard: HookEvent, project: str | None) -> str:
    """Return the project that an event belongs to: the one that is named, else that of its folder.

    Raises:
        Invalid: it names no folder, or one that two projects could be meant by; the data then has ``choices``.
    """
    if not project and not heard.directory.startswith("/"):
        raise Invalid("the event names no folder, so its project can't be told; send 'cwd', or name the project")
    return identify_project(project=project or None, directory=Path(heard.directory or "/"))


def _in_whole_characters(told: Mapping[str, Any]) -> Mapping[str, Any]:
    """Replace halves of surrogate pairs by question marks: clients in JavaScript cut texts in the middle of one."""
    text = json.dumps(told, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        whole: dict[str, Any] = json.loads(text.encode("utf-8", "replace"))
        return whole
    return told


def _table(client: str) -> Client:
    table = CLIENTS.get(client)
    if table is None:
        raise NotFound(f"{client!r} is no client that is known; known are: {', '.join(CLIENTS)}", known=list(CLIENTS))
    return table


def _hook(table: Client, client: str, event: str) -> Hook:
    hook = table.hooks.get(event)
    if hook is None:
        known = ", ".join(table.hooks)
        raise NotFound(f"{client} has no hook {event!r} that is known; known are: {known}", known=list(table.hooks))
    return hook


_NEEDED = {"content", "command", "path", "tool"}
"""Fields without which an event says nothing."""


def _payload(becomes: Becomes, told: Mapping[str, Any]) -> dict[str, Any]:
    found = {name: _value(source, told) for name, source in becomes.fields.items()}
    if any(not found[name] for name in _NEEDED & set(found) if name != "tool" or becomes.type == TOOL_MESSAGE.name):
        return {}
    return {name: value for name, value in found.items() if value not in (None, "")}


def _value(source: Source, told: Mapping[str, Any]) -> Any:
    match source:
        case Texts(sources, longest):
            return _cut("\n".join(filter(None, (_text(_at(told, each)) for each in sources))), longest)
        case Change():
            return _cut(_changes(source, told), source.longest)
        case Value(place, longest):
            return _bounded(_at(told, place), longest)
        case ExitCode(sources, place):
            numbers = [value for each in sources if type(value := _at(told, each)) is int]
            return numbers[0] if numbers else _exit_code(_text(_at(told, place)))
        case Constant(value):
            return value


def _at(told: Any, path: str) -> Any:
    """Return the value at a place such as ``tool_input.command``; None where there is none."""
    for name in path.split("."):
        told = told.get(name) if isinstance(told, Mapping) else None
    return told


def _word(value: Any) -> str:
    """Return a value that must be a text; "" for any other."""
    return value if isinstance(value, str) else ""


def _folder(value: Any) -> str:
    """Return a path; "" for what no file system takes, so that the event itself is not lost."""
    path = _word(value)
    return "" if "\0" in path else path


def _text(value: Any) -> str:
    """Return a value as text: parts of a message below one another, anything else as JSON."""
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, list):
        return "\n".join(filter(None, map(_text, value)))
    if isinstance(value, Mapping) and isinstance(value.get("text"), str):
        return str(value["text"])
    return json.dumps(value, ensure_ascii=False)


def _changes(source: Change, told: Mapping[str, Any]) -> str:
    pairs = _at(told, source.each) if source.each else [told]
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
    """Return at most ``longest`` characters; what is left out of the middle is said."""
    if len(text) <= longest:
        return text
    note = f"\n[… {len(text) - longest} characters left out …]\n"
    kept = longest - len(note)
    return text[: kept * 2 // 3] + note + text[-(kept - kept * 2 // 3) :]
