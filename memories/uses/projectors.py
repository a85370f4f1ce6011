"""What events say of the use of memories."""

from __future__ import annotations

import json

from memories.events import CONTEXT_PACKED, MEMORY_REVISED, ContextPacked, MemoryRevised
from memories.models import EndType
from memories.uses.counting import cite_again, count, forget_citing, forget_memory
from memories.uses.events import MEMORIES_USED, MemoriesUsed, Use
from memories.uses.unpack import forget_packs, own_memories
from memoryhub.core import clock
from memoryhub.core.events.projection import Event, projects
from memoryhub.core.log import PAYLOAD_ERASED, PayloadErased
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS, TEXTS
from sessions_app.events.client import ASSISTANT_MESSAGE


@projects(CONTEXT_PACKED)
def count_given(event: Event[ContextPacked]) -> None:
    """Count what a pack told of its own store, once each, in whatever sections."""
    count(Use.GIVEN, dict.fromkeys(own_memories(event.payload.marks), 1), event.occurred_at)


@projects(MEMORIES_USED)
def count_noted(event: Event[MemoriesUsed]) -> None:
    """Count what was noted of reads."""
    for use, counts in event.payload.uses.items():
        count(use, counts, clock.from_text(event.payload.used_at))


@projects(MEMORY_REVISED)
def count_updated(event: Event[MemoryRevised]) -> None:
    """Count that a memory got a new version."""
    count(Use.UPDATED, {event.payload.memory_id: 1}, event.occurred_at)


@projects(PAYLOAD_ERASED)
def forget_erased(event: Event[PayloadErased]) -> None:
    """Drop what became of erased memories, what erased texts cited, and what erased packs gave."""
    forget_packs(event.payload.positions)
    for stream in event.payload.streams:
        forget_citing(stream)
        kind, _, memory_id = stream.partition(":")
        if kind == EndType.MEMORY:
            forget_memory(int(memory_id))
    for (stream,) in rows.fetch(
        _STREAMS_LEFT, [json.dumps(event.payload.positions), json.dumps(event.payload.streams)]
    ):
        forget_citing(stream)
        cite_again(stream)


_STREAMS_LEFT = (
    f"SELECT DISTINCT stream_id FROM raw_events WHERE position IN {IDS} "
    f"AND event_type = '{ASSISTANT_MESSAGE.name}' AND stream_id NOT IN {TEXTS}"
)
