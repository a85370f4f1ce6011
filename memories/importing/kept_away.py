"""What a person has deleted stays deleted, however often its file is brought in again."""

from __future__ import annotations

import json
from collections.abc import Sequence

from memories.events import MEMORY_DELETED
from memories.models import Memory
from memories.schemas import MemoryWrite
from memoryhub.core.models import RawEvent

GONE_FROM_FILE = "the section is gone from its file"
"""The reason by which the import knows what it has deleted itself."""


def without_deleted(commands: Sequence[MemoryWrite]) -> list[MemoryWrite]:
    """Return the commands whose topic nobody but the import itself has deleted."""
    keys = [command.topic_key for command in commands if command.topic_key]
    newest = dict(Memory.objects.filter(topic_key__in=keys).order_by("id").values_list("topic_key", "id"))
    deleted = set(Memory.objects.filter(id__in=newest.values(), deleted_at__isnull=False).values_list("id", flat=True))
    by_a_person = {memory_id for memory_id, reason in _reasons(deleted).items() if reason != GONE_FROM_FILE}
    return [command for command in commands if newest.get(command.topic_key) not in by_a_person]


def _reasons(memory_ids: set[int]) -> dict[int, str]:
    """Return why each was deleted last."""
    streams = [f"memory:{memory_id}" for memory_id in memory_ids]
    events = RawEvent.objects.filter(stream_id__in=streams, event_type=MEMORY_DELETED.name).order_by("position")
    found = events.values_list("stream_id", "payload_json")
    return {int(stream.removeprefix("memory:")): json.loads(text or "{}").get("reason", "") for stream, text in found}
