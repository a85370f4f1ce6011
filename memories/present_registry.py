"""Entries of the registry as lines for a model."""

from __future__ import annotations

from typing import Any

from memories.present import memory_line
from memoryhub.core.kinds import KINDS
from memoryhub.core.wording import flat


def entry_line(item: dict[str, Any]) -> str:
    """Return a listed entry as one line: kind, type and name; priority, if lists are in that order; its text."""
    if "content" not in item:
        return memory_line(item)
    kind = KINDS[item["kind"]]
    default = kind.shapes["priority"].default if kind.order == "priority" else None
    priority = "" if default is None else f" priority {item['attributes'].get('priority', default)}"
    text = "" if item["content"] in ("", item["title"]) else f": {item['content']}"
    return flat(f"{memory_line(item)}{priority}{text}")
