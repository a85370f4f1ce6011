"""The end of a client's transcript: a file of JSON lines, one message each. Standard library only."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_TAIL_BYTES = 256 * 1024


def with_last_message(told: Mapping[str, Any], *, place: str, transcript: str) -> dict[str, Any]:
    """Return what a client reported, with its last message read from its transcript where it left that out."""
    if told.get(place):
        return dict(told)
    return {**told, place: last_assistant_message(told.get(transcript))}


def last_assistant_message(path: object) -> str:
    """Return the text of the last message of the assistant, read from the file's end; "" where there is none."""
    if not isinstance(path, str) or not path.endswith(".jsonl"):
        return ""
    for line in reversed(_tail(Path(path)).splitlines()):
        text = _text_of(line)
        if text:
            return text
    return ""


def _tail(path: Path) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return b""
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            return b""
        return os.pread(descriptor, _TAIL_BYTES, max(0, found.st_size - _TAIL_BYTES))
    finally:
        os.close(descriptor)


def _text_of(line: bytes) -> str:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return ""  # the first line of the tail is cut
    if not isinstance(entry, dict) or entry.get("type") != "assistant" or entry.get("isSidechain"):
        return ""
    message = entry.get("message")
    return _joined(message.get("content")) if isinstance(message, dict) else ""


def _joined(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = [part.get("text") for part in parts if isinstance(part, dict) and part.get("type") == "text"]
    return "\n".join(text for text in texts if isinstance(text, str))
