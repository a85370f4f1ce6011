"""Telling what became of memories."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from pydantic import BaseModel

from memories.models import MemoryUse
from memories.uses.kinds import Use


class UseView(BaseModel):
    """What became of a memory, as every door shows it."""

    given: int = 0
    """Packs that told it."""
    found: int = 0
    """Times that a search or a query showed it."""
    fetched: int = 0
    """Times that it was asked for by id or name."""
    cited: int = 0
    """Memories, decisions, answers and summaries that name it."""
    updated: int = 0
    """Versions after its first."""
    ignored: bool = False
    """Whether packs told it and nothing else became of it."""
    last_given_at: datetime | None = None
    last_used_at: datetime | None = None
    """When it was last found, fetched, cited or updated."""


_NOTHING = UseView().model_dump(mode="json")


def uses_of(ids: Sequence[int]) -> dict[int, dict[str, Any]]:
    """Return what became of memories of the current store as JSON data, by id."""
    known = {use.memory_id: _shown(use) for use in MemoryUse.objects.filter(memory_id__in=list(ids))}
    return {each: known.get(each, _NOTHING) for each in ids}


def _shown(use: MemoryUse) -> dict[str, Any]:
    counts = {name.value: getattr(use, name.value) for name in Use}
    ignored = bool(counts.pop("given")) and not any(counts.values())
    times = {"last_given_at": use.last_given_at, "last_used_at": use.last_used_at}
    return UseView(given=use.given, **counts, ignored=ignored, **times).model_dump(mode="json")
