from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from memories.duplicates import Existing, review_status_of
from memories.events import (
    MEMORY_REVIEWED,
    RELATION_CREATED,
    RELATION_DELETED,
    MemoryReviewed,
    MemoryState,
    MemoryTouched,
    RelationCreated,
    RelationDeleted,
    ReviewStatus,
    Verdict,
)
from memories.models import Memory
from memories.projectors.memories import ACCEPTED
from memories.services.revise import append_version
from memoryhub.core import log
from memoryhub.core.events.event_types import EventType, types_reversed_by
from memoryhub.core.events.rollback import Apply, Effect, Step, effects
from memoryhub.core.log.quarantine import QUARANTINE_LIFTED, QUARANTINE_PLACED, QuarantineLifted, QuarantinePlaced
from memoryhub.core.models import RawEvent
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import int_entries

# The payload of a given version of each memory
_STATES = (
    f"SELECT v.memory_id, e.payload_json FROM {int_entries()} s JOIN memories_memoryversion v "
    "ON v.memory_id = CAST(s.key AS INTEGER) AND v.version = s.value JOIN raw_events e ON e.position = v.id"
)


def execute_steps(steps: Sequence[Step], *, reason: str) -> None:
    """Apply steps in the order of their effects; needs an open transaction of the log."""
    by_name: dict[str, list[Step]] = {}
    for step in steps:
        by_name.setdefault(step.do, []).append(step)
    for name, effect in effects().items():
        if name in by_name:
            (effect.apply or partial(_put_back, effect))(by_name[name], reason)


def _put_back(effect: Effect, steps: Sequence[Step], reason: str) -> None:
    values, event_type = effect.values, types_reversed_by(effect.step)[0]
    if values is None or values.write is None:
        raise TypeError(f"effect {effect.step!r} can't be applied")  # ``Effect`` refuses such a declaration
    for step in steps:
        stream = f"{values.thing}:{step.id}" if values.thing else "project"
        log.append(log.prepare(event_type, values.write(step, reason)), stream=stream)


def quarantine(steps: Sequence[Step], reason: str) -> None:
    payload = QuarantinePlaced(ids=[step.id for step in steps], reason=reason)
    log.append(log.prepare(QUARANTINE_PLACED, payload), stream="quarantine")


def lift(steps: Sequence[Step], reason: str) -> None:
    payload = QuarantineLifted(ids=[step.id for step in steps], reason=reason)
    log.append(log.prepare(QUARANTINE_LIFTED, payload), stream="quarantine")


def append_to_memories(event_type: EventType[MemoryTouched]) -> Apply:
    def append(steps: Sequence[Step], reason: str) -> None:
        for step in steps:
            draft = log.prepare(event_type, MemoryTouched(memory_id=step.id, reason=reason))
            log.append(draft, stream=f"memory:{step.id}")

    return append


def revert(steps: Sequence[Step], reason: str) -> None:
    memories = Memory.objects.in_bulk([step.id for step in steps])
    states = states_at({step.id: step.to_version or 1 for step in steps})
    for step in steps:
        existing = Existing.of(memories[step.id])
        status = ReviewStatus.model_validate(step.after) if step.after else ACCEPTED
        append_version(existing, states[step.id], base=step.to_version or 1, reason=reason, key=None, review=status)


def review(steps: Sequence[Step], reason: str) -> None:
    memories = Memory.objects.in_bulk([step.id for step in steps])
    for step in steps:
        memory = memories[step.id]
        payload = MemoryReviewed(
            memory_id=step.id,
            verdict=Verdict.WITHDRAWN,
            version=memory.version,
            stands=memory.version,
            reason=reason,
            before=review_status_of(memory),
            after=ReviewStatus.model_validate(step.after),
        )
        log.append(log.prepare(MEMORY_REVIEWED, payload), stream=f"memory:{step.id}")


def states_at(versions: dict[int, int]) -> dict[int, MemoryState]:
    found = rows.fetch(_STATES, [json.dumps(versions)])
    return {memory_id: _state(json.loads(payload or "{}")) for memory_id, payload in found}


def _state(payload: dict[str, Any]) -> MemoryState:
    return MemoryState(**{name: value for name, value in payload.items() if name in MemoryState.model_fields})


def relate(steps: Sequence[Step], _: str) -> None:
    made = relations_as_made(step.id for step in steps)
    for step in steps:
        log.append(log.prepare(RELATION_CREATED, made[step.id]), entity="relation")


def relations_as_made(ids: Iterable[int]) -> dict[int, RelationCreated]:
    events = RawEvent.objects.filter(position__in=list(ids), event_type=RELATION_CREATED.name)
    return {event.position: RelationCreated(**json.loads(event.payload_json)) for event in events if event.payload_json}


def unrelate(steps: Sequence[Step], reason: str) -> None:
    for step in steps:
        draft = log.prepare(RELATION_DELETED, RelationDeleted(relation_id=step.id, reason=reason))
        log.append(draft, stream=f"relation:{step.id}")
