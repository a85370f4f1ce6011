"""The JSON that clients exchange with their hooks, and their transcripts. Standard library only: hooks import it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from memoryhub.core.foreign_files import open_foreign


def hook_answer(key: str, event: str, text: str, *, is_question: bool = False) -> dict[str, object]:
    """Return what a hook prints so that its client adds ``text`` to its model's context.

    Args:
        key: ``answer`` in the client's table; "" for the form of Claude Code.
        event: the client's name of the event.
        text: the context.
        is_question: the model answers it instead of ending its turn.
    """
    if is_question:
        return {"decision": "block", "reason": text}
    if key:
        return {key: text}
    return {"hookSpecificOutput": {"hookEventName": event, "additionalContext": text}}


def value_at(data: Any, path: str) -> Any:
    """Return the value at a path of names and indices in a client's JSON, or None. JSON that is a text is parsed."""
    for name in path.split("."):
        if isinstance(data, str):
            if not data.lstrip().startswith(("{", "[")):
                return None
            try:
                data = json.loads(data)
            except (ValueError, RecursionError):
                return None
        if isinstance(data, dict):
            data = data.get(name)
        elif isinstance(data, list) and name.isdecimal() and int(name) < len(data):
            data = data[int(name)]
        else:
            return None
    return data


_TAIL_BYTES = 256 * 1024


def with_last_message(data: Mapping[str, Any], *, path: str, transcript: str) -> dict[str, Any]:
    """Return a hook's data with the last message at ``path``, read from the transcript if it is missing."""
    if data.get(path):
        return dict(data)
    return {**data, path: last_assistant_message(data.get(transcript))}


def last_assistant_message(path: object) -> str:
    """Return the text of the assistant's last message, read from the file's end; "" if there is none."""
    if not isinstance(path, str) or not path.endswith(".jsonl"):
        return ""
    for line in reversed(_tail(Path(path)).splitlines()):
        text = _message_text(line)
        if text:
            return text
    return ""


def _tail(path: Path) -> bytes:
    try:
        descriptor = open_foreign(path)
    except OSError:
        return b""
    try:
        return os.pread(descriptor, _TAIL_BYTES, max(0, os.fstat(descriptor).st_size - _TAIL_BYTES))
    finally:
        os.close(descriptor)


def _message_text(line: bytes) -> str:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return ""  # the tail's first line is incomplete
    if not isinstance(entry, dict) or entry.get("type") != "assistant" or entry.get("isSidechain"):
        return ""
    message = entry.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = [part.get("text") for part in parts if isinstance(part, dict) and part.get("type") == "text"]
    return "\n".join(text for text in texts if isinstance(text, str))
