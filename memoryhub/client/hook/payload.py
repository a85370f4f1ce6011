"""What is done to an event where it can't be handed over as it is. Imported only then."""

from __future__ import annotations

import json
from typing import Any

_LONGEST = 100_000
_SHORTEST = 1_000
_DEEPEST = 40


def shortened(body: bytes, limit: int) -> bytes:
    """Return the JSON object with its long texts cut so far that it has at most ``limit`` bytes.

    Raises:
        ValueError: it is no JSON, or has so many texts that cutting them does not help.
    """
    value = read(body)
    longest = _LONGEST
    while longest >= _SHORTEST:
        found = json.dumps(cut(value, longest)).encode()
        if len(found) <= limit:
            return found
        longest //= 4
    raise ValueError(f"the event cannot be cut to {limit} bytes; it is not kept")


def read(body: bytes) -> dict[str, Any]:
    """Return the JSON object.

    Raises:
        ValueError: it is none.
    """
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"what came on standard input is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise ValueError("what came on standard input is no JSON object")
    return value


def cut(value: Any, longest: int, depth: int = _DEEPEST) -> Any:
    """Return a copy whose texts have at most ``longest`` characters, the middle left out with a note."""
    if isinstance(value, str):
        return cut_text(value, longest)
    if depth == 0 and isinstance(value, dict | list):
        return "[left out: nested too deeply]"
    if isinstance(value, dict):
        return {key: cut(item, longest, depth - 1) for key, item in value.items()}
    if isinstance(value, list):
        return [cut(item, longest, depth - 1) for item in value]
    return value


def cut_text(text: str, longest: int) -> str:
    """Return at most ``longest`` characters and a note of how many are left out of the middle."""
    if len(text) <= longest:
        return text
    head = longest * 2 // 3
    return f"{text[:head]}\n[… {len(text) - longest} characters left out …]\n{text[head - longest :]}"


def project_of(body: bytes) -> str:
    """Return the project that the event's folder belongs to, by this process's environment.

    Raises:
        Invalid: the folder does not say which.
        ValueError: the event names no folder.
    """
    from pathlib import Path

    from memoryhub.config.identity import identify_project

    directory = read(body).get("cwd")
    if not isinstance(directory, str) or not directory:
        raise ValueError("the event names no folder ('cwd'), so its project can't be told; it is not kept")
    return identify_project(project=None, directory=Path(directory))
