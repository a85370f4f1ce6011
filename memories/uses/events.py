from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from memories.events import USE
from memoryhub.core.events.event_types import Retention, define_event
from memoryhub.core.events.rollback import NOTHING_DEPENDS
from memoryhub.core.schemas import EventRef, Generated, Instant, Payload


class Use(StrEnum):
    """A way to use a memory; each is a column of ``MemoryUse``."""

    # Included in a context pack
    GIVEN = "given"
    # Shown by a search or query
    FOUND = "found"
    # Read by id or name
    FETCHED = "fetched"
    # Named by a later memory, decision, answer or summary
    CITED = "cited"
    # Got a new version
    UPDATED = "updated"


# Uses without an event of their own; for packs, only those of memories in other stores
NOTED = (Use.GIVEN, Use.FOUND, Use.FETCHED)


NotesFile = Annotated[str, Generated(r"\d{1,20}-\d{2}(?:\.[a-z]+){0,2}", "the name of a file of notes")]


class MemoriesUsed(Payload):
    uses: dict[Use, dict[EventRef, int]] = Field(default_factory=dict)
    # What sessions found and fetched: ids of memories and decisions by the session's
    sessions: dict[EventRef, list[EventRef]] = Field(default_factory=dict)
    # Time of the last use, ISO 8601
    used_at: Instant
    # The files of notes in these counts
    files: list[NotesFile]


MEMORIES_USED = define_event(
    "memories.used",
    MemoriesUsed,
    label="Memories used",
    group=USE,
    retention=Retention.KEPT,
    rollback=NOTHING_DEPENDS,
    changes_stream=False,
)
