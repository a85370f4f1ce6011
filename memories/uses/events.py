"""What is written down of reads, many at once."""

from __future__ import annotations

from pydantic import Field

from memories.uses.kinds import Use
from memoryhub.core.projection import NOTHING_DEPENDS, define_event
from memoryhub.core.schemas import Payload


class MemoriesUsed(Payload):
    """Memories were shown; how often, by kind of use and id."""

    uses: dict[Use, dict[int, int]] = Field(default_factory=dict)
    used_at: str
    """When the last of them was; ISO 8601."""
    files: list[str]
    """The files of notes that are in these counts: one that is still there was folded already."""


MEMORIES_USED = define_event("memories.used", MemoriesUsed, rollback=NOTHING_DEPENDS, changes_stream=False)
