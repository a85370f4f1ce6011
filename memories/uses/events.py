"""What is written down of reads, many at once."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from memories.events import USE
from memoryhub.core.events.event_types import Retention, define_event
from memoryhub.core.events.rollback import NOTHING_DEPENDS
from memoryhub.core.schemas import Generated, Instant, Payload


class Use(StrEnum):
    """What happened to a memory; each is a column of ``MemoryUse``."""

    GIVEN = "given"
    """A context pack told it."""
    FOUND = "found"
    """A search or a query showed it."""
    FETCHED = "fetched"
    """It was asked for by id or name."""
    CITED = "cited"
    """A later memory, decision, answer or summary names it."""
    UPDATED = "updated"
    """It got a new version."""


NOTED = (Use.GIVEN, Use.FOUND, Use.FETCHED)
"""What leaves no event by itself; of packs, what they told of other stores than their own."""


NotesFile = Annotated[str, Generated(r"\d{1,20}-\d{2}(?:\.[a-z]+){0,2}", "the name of a file of notes")]


class MemoriesUsed(Payload):
    """Memories were shown; how often, by kind of use and id."""

    uses: dict[Use, dict[int, int]] = Field(default_factory=dict)
    used_at: Instant
    """When the last of them was; ISO 8601."""
    files: list[NotesFile]
    """The files of notes that are in these counts: one that is still there was folded already."""


MEMORIES_USED = define_event(
    "memories.used",
    MemoriesUsed,
    label="Memories used",
    group=USE,
    retention=Retention.KEPT,
    rollback=NOTHING_DEPENDS,
    changes_stream=False,
)
