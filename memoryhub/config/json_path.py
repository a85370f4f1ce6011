"""Paths into a client's JSON, as ``clients.toml`` writes them. Standard library only: hooks import it."""

from __future__ import annotations

import json
from typing import Any


def value_at(data: Any, path: str) -> Any:
    """Return the value at a path of names and indices in a client's JSON, or None. JSON that is a text is parsed."""
    for name in path.split("."):
        if isinstance(data, str):
            data = _parsed(data)
        if isinstance(data, list):
            data = data[int(name)] if name.isdecimal() and int(name) < len(data) else None
        else:
            data = data.get(name) if isinstance(data, dict) else None
    return data


def _parsed(text: str) -> Any:
    try:
        return json.loads(text) if text.lstrip().startswith(("{", "[")) else None
    except (ValueError, RecursionError):
        return None
