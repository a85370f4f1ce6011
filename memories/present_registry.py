"""Entries of the registry as lines for a model."""

from __future__ import annotations

from typing import Any

from memories.kinds import GuidelineAttributes
from memories.models import MemoryKind
from memories.present import memory_line
from memoryhub.core.wording import flat

_PRIORITY = GuidelineAttributes.model_fields["priority"].default


def entry_line(item: dict[str, Any]) -> str:
    """Return a listed entry as one line: what it is, its name, of a guideline its priority, how its text begins."""
    if "content" not in item:
        return memory_line(item)
    guides = item["kind"] == MemoryKind.GUIDELINE
    priority = f" priority {item['attributes'].get('priority', _PRIORITY)}" if guides else ""
    text = "" if item["content"] in ("", item["title"]) else f": {item['content']}"
    return flat(f"{memory_line(item)}{priority}{text}")
