"""What one event was about: a line for lists, and the text that is worth reading as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memoryhub.core.events.event_types import event_type
from memoryhub.core.log.event_view import main_text
from memoryhub.core.text import first_line

# Fields whose text a person reads, the most telling first.
_TEXTS = ("content", "output", "change", "summary", "outcome", "detail", "message", "description")


def about(type_name: str, payload: Mapping[str, Any], title: str) -> str:
    """Return in one line what an event was about.

    Args:
        type_name: such as ``command.run``.
        payload: its payload; empty once erased.
        title: that of the thing it happened to, if known.
    """
    if not payload:
        return title
    known = event_type(type_name)
    if known and known.about:
        return first_line(known.about(payload))
    return first_line(payload.get("title") or title or main_text(payload))


def body(type_name: str, payload: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the text of a payload that is worth reading as text, and the rest of the payload."""
    line = about(type_name, payload, "")
    for name in _TEXTS:
        text = payload.get(name)
        if isinstance(text, str) and text.strip() not in ("", line):
            return text, {key: value for key, value in payload.items() if key != name}
    return "", dict(payload)


def joined(*parts: Any) -> str:
    """Return the first lines of texts with colons between them, without empty ones."""
    return ": ".join(first_line(part) for part in parts if part)
