from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memoryhub.core.events.event_types import event_type
from memoryhub.core.log.read import main_text
from memoryhub.core.text import first_line

# Payload fields that hold a readable text, the most informative first.
_TEXTS = ("content", "output", "change", "summary", "outcome", "detail", "message", "description")


def about(type_name: str, payload: Mapping[str, Any], title: str) -> str:
    """Return one line that describes an event.

    Args:
        type_name: such as ``command.run``.
        payload: its payload; empty once erased.
        title: title of the entity that the event belongs to, if known.
    """
    if not payload:
        return title
    declared = event_type(type_name)
    if declared and declared.about:
        return first_line(declared.about(payload))
    own_title = payload.get("title")
    return first_line((isinstance(own_title, str) and own_title) or title or main_text(payload))


def body(type_name: str, payload: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the payload's main text, and the payload without it."""
    line = about(type_name, payload, "")
    for name in _TEXTS:
        text = payload.get(name)
        if isinstance(text, str) and text.strip() not in ("", line):
            return text, {key: value for key, value in payload.items() if key != name}
    return "", dict(payload)


def joined(*parts: Any) -> str:
    """Join the first lines of the non-empty parts with colons."""
    return ": ".join(first_line(part) for part in parts if part and isinstance(part, str))
