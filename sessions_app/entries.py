"""What one event was about: a line for lists, and the text that is worth reading as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from memoryhub.core.chronicle import telling

MAX_TITLE = 200
_TEXTS = ("content", "output", "change", "summary", "outcome", "detail", "message", "description")
"""Fields whose text a person reads, the most telling first."""
_CALLED_WITH = ("file_path", "pattern", "query", "path", "url", "command", "title", "description", "prompt", "name")
"""What a tool is called with, the most telling first."""


def about(event_type: str, payload: Mapping[str, Any], title: str) -> str:
    """Return in one line what an event was about.

    Args:
        event_type: such as ``command.run``.
        payload: its payload; empty once erased.
        title: that of the thing it happened to, if known.
    """
    if not payload:
        return title
    special = _ABOUT.get(event_type) or _ABOUT.get(event_type.partition(".")[0])
    told = special(payload) if special else payload.get("title") or title or telling(payload)
    return first_line(told)


def body(event_type: str, payload: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the text of a payload that is worth reading as text, and the rest of the payload."""
    line = about(event_type, payload, "")
    for name in _TEXTS:
        text = payload.get(name)
        if isinstance(text, str) and text.strip() not in ("", line):
            return text, {key: value for key, value in payload.items() if key != name}
    return "", dict(payload)


def first_line(text: Any) -> str:
    """Return the first line of a text, at most 200 characters of it."""
    return str(text).strip().split("\n", 1)[0][:MAX_TITLE]


def _joined(*parts: Any) -> str:
    return ": ".join(first_line(part) for part in parts if part)


def _tool(payload: Mapping[str, Any]) -> str:
    given = payload.get("input")
    if isinstance(given, Mapping):
        words = [given[name] for name in _CALLED_WITH if isinstance(given.get(name), str)]
        given = next(iter(words or [value for value in given.values() if isinstance(value, str)]), "")
    return _joined(payload.get("tool"), given if isinstance(given, str) else "")


def _commit(payload: Mapping[str, Any]) -> str:
    return first_line(payload.get("message") or payload.get("sha", ""))


def _settings(payload: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in payload.get("settings", {}).items())


def _advance(payload: Mapping[str, Any]) -> str:
    done, begun = payload.get("completed"), payload.get("phase")
    return ", ".join([*([f"{done} done"] if done else []), *([f"{begun} begins"] if begun else [])]) or "artifacts"


_ABOUT: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "message.tool": _tool,
    "commit": _commit,
    "command.run": lambda payload: payload.get("command", ""),
    "file.edited": lambda payload: payload.get("path", ""),
    "phase": lambda payload: _joined(payload.get("phase"), payload.get("detail")),
    "gate": lambda payload: _joined(payload.get("phase"), payload.get("detail")),
    "user": lambda payload: _joined(payload.get("subject"), payload.get("detail")),
    "project.configured": _settings,
    "iteration.started": lambda payload: _joined(payload.get("command"), payload.get("description")),
    "iteration.advanced": _advance,
    "session.started": lambda payload: payload.get("purpose") or payload.get("agent") or payload.get("session_id", ""),
    "session.ended": lambda payload: payload.get("summary") or payload.get("status", ""),
    "session.paused": lambda payload: payload.get("session_id", ""),
    "session.resumed": lambda payload: payload.get("session_id", ""),
    "turn.ended": lambda payload: payload.get("summary", ""),
    "turn.expired": lambda _payload: "Nothing came for too long; the turn is incomplete",
}
"""By the whole type, or by what stands before its dot."""
