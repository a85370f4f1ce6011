"""Applying the steps of a plan."""

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

_STATES = (
    f"SELECT v.memory_id, e.payload_json FROM {int_entries()} s JOIN memories_memoryversion v "
    "ON v.memory_id = CAST(s.key AS INTEGER) AND v.version = s.value JOIN raw_events e ON e.position = v.id"
)


def perform(steps: Sequence[Step], *, reason: str) -> None:
    """Do the steps, in their order. Needs an open transaction of the log."""
    by_name: dict[str, list[Step]] = {}
    for step in steps:
        by_name.setdefault(step.do, []).append(step)
    for name, effect in effects().items():
        if name in by_name:
            (effect.apply or partial(_put_back, effect))(by_name[name], reason)


def _put_back(effect: Effect, steps: Sequence[Step], reason: str) -> None:
    """Append the event that gives each thing its value back."""
    values, event_type = effect.values, types_reversed_by(effect.step)[0]
    if values is None or values.write is None:
        raise TypeError(f"effect {effect.step!r} can't be applied")  # ``Effect`` refuses such a declaration
    for step in steps:
        stream = f"{values.thing}:{step.id}" if values.thing else "project"
        log.append(log.prepare(event_type, values.write(step, reason)), stream=stream)


def quarantine(steps: Sequence[Step], reason: str) -> None:
    """Set all of them aside with one event."""
    payload = QuarantinePlaced(ids=[step.id for step in steps], reason=reason)
    log.append(log.prepare(QUARANTINE_PLACED, payload), stream="quarantine")


def lift(steps: Sequence[Step], reason: str) -> None:
    """Let all of them out of quarantine with one event."""
    payload = QuarantineLifted(ids=[step.id for step in steps], reason=reason)
    log.append(log.prepare(QUARANTINE_LIFTED, payload), stream="quarantine")


def touching(event_type: EventType[MemoryTouched]) -> Apply:
    """Return what appends such an event to the memory of each step."""

    def touch(steps: Sequence[Step], reason: str) -> None:
        for step in steps:
            draft = log.prepare(event_type, MemoryTouched(memory_id=step.id, reason=reason))
            log.append(draft, stream=f"memory:{step.id}")

    return touch


def revert(steps: Sequence[Step], reason: str) -> None:
    """Make the versions that the steps name the current ones again, each as a new version."""
    memories = Memory.objects.in_bulk([step.id for step in steps])
    states = states_at({step.id: step.to_version or 1 for step in steps})
    for step in steps:
        existing = Existing.of(memories[step.id])
        status = ReviewStatus.model_validate(step.after) if step.after else ACCEPTED
        append_version(existing, states[step.id], base=step.to_version or 1, reason=reason, key=None, review=status)


def review(steps: Sequence[Step], reason: str) -> None:
    """Give memories the review state back that the steps name."""
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
    """Return what each memory was at a version."""
    found = rows.fetch(_STATES, [json.dumps(versions)])
    return {memory_id: _state(json.loads(payload or "{}")) for memory_id, payload in found}


def _state(payload: dict[str, Any]) -> MemoryState:
    return MemoryState(**{name: value for name, value in payload.items() if name in MemoryState.model_fields})


def relate(steps: Sequence[Step], _: str) -> None:
    """Make relations again, as they were made first."""
    made = relations_as_made(step.id for step in steps)
    for step in steps:
        log.append(log.prepare(RELATION_CREATED, made[step.id]), entity="relation")


def relations_as_made(ids: Iterable[int]) -> dict[int, RelationCreated]:
    """Return relations as the log has them, for those that are gone; without those that were erased."""
    events = RawEvent.objects.filter(position__in=list(ids), event_type=RELATION_CREATED.name)
    return {each.position: RelationCreated(**json.loads(each.payload_json)) for each in events if each.payload_json}


def unrelate(steps: Sequence[Step], reason: str) -> None:
    """Take relations away."""
    for step in steps:
        draft = log.prepare(RELATION_DELETED, RelationDeleted(relation_id=step.id, reason=reason))
        log.append(draft, stream=f"relation:{step.id}")
