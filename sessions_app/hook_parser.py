"""Read what a client tells at a hook, by the client's table; everything in it may be absent or of another type."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memoryhub.config.clients import Command, Edit, Effect, Hook, Hooks, hook_clients
from memoryhub.config.identity import identify_project
from memoryhub.core.errors import Invalid, NotFound
from memoryhub.core.text import flat
from sessions_app.events.client import COMMAND_RUN, FILE_EDITED, TOOL_MESSAGE
from sessions_app.transcript import with_last_message

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
    if hook.transcript:
        told = with_last_message(told, place=hook.content[0], transcript=hook.transcript)
    kind, payload = _event(table, hook, told)
    return HookEvent(
        effect=hook.effect,
        answers=hook.effect is Effect.START,
        session_id=session[:200],
        directory=_folder(_at(told, table.directory)),
        reason=flat(_word(_at(told, table.reason)))[:100],
        type=kind,
        payload=_filled(payload),
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


def _table(client: str) -> Hooks:
    known = hook_clients()
    if client not in known:
        raise NotFound(f"{client!r} is no client that is known; known are: {', '.join(known)}", known=list(known))
    return known[client]


def _hook(table: Hooks, client: str, event: str) -> Hook:
    hook = table.find(event)
    if hook is None:
        known = [*table.events, *table.ignored]
        raise NotFound(f"{client} has no hook {event!r} that is known; known are: {', '.join(known)}", known=known)
    return hook


def _event(table: Hooks, hook: Hook, told: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the type and the payload of the turn's event; the first field is the one without which it says nothing."""
    if hook.effect is not Effect.TOOL:
        return hook.type, {"content": _texts(told, hook.content, 50_000)}
    tool = _word(_at(told, table.tool))
    if tool in hook.commands:
        return COMMAND_RUN.name, _command(table, hook.commands[tool], told)
    if tool in hook.edits:
        return FILE_EDITED.name, _edit(table, hook.edits[tool], told)
    return TOOL_MESSAGE.name, _call(table, hook, told)


def _filled(payload: dict[str, Any]) -> dict[str, Any]:
    first = next(iter(payload.values()))
    return {name: value for name, value in payload.items() if value not in (None, "")} if first else {}


def _command(table: Hooks, tool: Command, told: Mapping[str, Any]) -> dict[str, Any]:
    numbers = [code for place in tool.exit_code if type(code := _at(told, place)) is int]
    return {
        "command": _texts(told, (tool.command,), 10_000),
        "output": _texts(told, tool.output, 8_000),
        "exit_code": numbers[0] if numbers else _exit_code(_text(_at(told, tool.exit_text))),
        "directory": _texts(told, (table.directory,), 4_000),
    }


def _edit(table: Hooks, tool: Edit, told: Mapping[str, Any]) -> dict[str, Any]:
    change = _texts(told, (tool.text,), 4_000) if tool.text else _cut(_changes(tool, told), 4_000)
    return {"path": _texts(told, (tool.path,), 4_000), "change": change, "tool": _texts(told, (table.tool,), 200)}


def _call(table: Hooks, hook: Hook, told: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "tool": _texts(told, (table.tool,), 200),
        "call_id": _texts(told, (table.call,), 200),
        "input": _bounded(_at(told, table.input)),
        "output": _bounded(_at(told, hook.result)),
        "is_error": hook.is_error,
    }


def _texts(told: Mapping[str, Any], places: tuple[str, ...], longest: int) -> str:
    """Return the texts at these places, one below the other."""
    return _cut("\n".join(filter(None, (_text(_at(told, place)) for place in places))), longest)


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


def _changes(tool: Edit, told: Mapping[str, Any]) -> str:
    pairs = _at(told, tool.each) if tool.each else [told]
    if not isinstance(pairs, list):
        return ""
    return "\n".join(_changed(_at(pair, tool.old), _at(pair, tool.new)) for pair in pairs)


def _changed(old: Any, new: Any) -> str:
    lines = [f"- {line}" for line in _text(old).splitlines()] + [f"+ {line}" for line in _text(new).splitlines()]
    return "\n".join(lines)


def _exit_code(text: str) -> int | None:
    found = _EXIT_CODE.search(text)
    return int(found[1]) if found else None


def _bounded(value: Any, longest: int = 2_000) -> Any:
    """Return JSON with its texts cut to ``longest`` characters, and the whole to four times as many."""
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
