"""What goes with a text that was erased from the log."""

from __future__ import annotations

from memories.models import EndType
from memoryhub.core import rows
from memoryhub.core.log import PAYLOAD_ERASED, PayloadErased
from memoryhub.core.projection import Event, projects

_OF_MEMORY = (
    "DELETE FROM memories_memorytag WHERE memory_id = %s",
    "DELETE FROM memories_memoryversion WHERE memory_id = %s",
    "DELETE FROM memories_conflict WHERE memory_id = %s",
    "DELETE FROM memories_memory WHERE id = %s",
)
_OF_END = (
    "DELETE FROM memories_relation WHERE source_type = %s AND source_id = %s",
    "DELETE FROM memories_relation WHERE target_type = %s AND target_id = %s",
)


@projects(PAYLOAD_ERASED)
def remove_erased(event: Event[PayloadErased]) -> None:
    """Drop the memories whose text was erased from the log, and every relation that they were an end of."""
    for stream in event.payload.streams:
        kind, _, memory_id = stream.partition(":")
        if kind != EndType.MEMORY:
            continue
        for sql in _OF_MEMORY:
            rows.execute(sql, [memory_id])
        for sql in _OF_END:
            rows.execute(sql, [EndType.MEMORY, memory_id])
