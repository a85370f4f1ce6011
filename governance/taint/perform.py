"""Doing the steps of a plan: one event for all that goes into quarantine or comes out, and one for each other step."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from decisions.events import DECISION_MARKED, DecisionMarked
from decisions.models import DecisionStatus
from decisions.selectors import heads
from governance.taint.schemas import Step
from memories.events import (
    MEMORY_DELETED,
    MEMORY_RESTORED,
    MEMORY_REVIEWED,
    RELATION_CREATED,
    RELATION_DELETED,
    MemoryReviewed,
    MemoryState,
    MemoryTouched,
    RelationCreated,
    RelationDeleted,
    Standing,
    Verdict,
)
from memories.existing import Existing, standing_of
from memories.models import Memory
from memories.projectors.review import ACCEPTED
from memories.services.revise import append_version
from memoryhub.core import log, rows
from memoryhub.core.dialect import int_entries
from memoryhub.core.models import RawEvent
from memoryhub.core.projection import EventType
from memoryhub.core.quarantine import QUARANTINE_LIFTED, QUARANTINE_PLACED, QuarantineLifted, QuarantinePlaced
from sessions_app.events import PROJECT_CONFIGURED, PROJECT_DESCRIBED, ProjectConfigured, ProjectDescribed

AT_ONCE = ("quarantine", "lift")
"""Steps that share one event."""

# Names are made free before others take them, and which decisions stand is known before one is marked.
ORDER = tuple("quarantine delete unrelate revert restore lift review relate configure describe mark".split())

_STATES = (
    f"SELECT v.memory_id, e.payload_json FROM {int_entries()} s JOIN memories_memoryversion v "
    "ON v.memory_id = CAST(s.key AS INTEGER) AND v.version = s.value JOIN raw_events e ON e.position = v.id"
)


def events_of(steps: Iterable[Step]) -> int:
    """Return how many events the steps take."""
    kinds = [step.do for step in steps]
    return sum(1 for each in kinds if each not in AT_ONCE) + len({*AT_ONCE} & {*kinds})


def perform(steps: Sequence[Step], *, reason: str) -> None:
    """Do the steps, in their order. Needs an open transaction of the log."""
    by_kind: dict[str, list[Step]] = {}
    for step in steps:
        by_kind.setdefault(step.do, []).append(step)
    for kind in ORDER:
        if kind in by_kind:
            _DOING[kind](by_kind[kind], reason)


def _quarantine(steps: Sequence[Step], reason: str) -> None:
    payload = QuarantinePlaced(ids=[step.id for step in steps], reason=reason)
    log.append(log.prepare(QUARANTINE_PLACED, payload), stream="quarantine")


def _lift(steps: Sequence[Step], reason: str) -> None:
    payload = QuarantineLifted(ids=[step.id for step in steps], reason=reason)
    log.append(log.prepare(QUARANTINE_LIFTED, payload), stream="quarantine")


def _touching(event_type: EventType[MemoryTouched]) -> Callable[[Sequence[Step], str], None]:
    def touch(steps: Sequence[Step], reason: str) -> None:
        for step in steps:
            draft = log.prepare(event_type, MemoryTouched(memory_id=step.id, reason=reason))
            log.append(draft, stream=f"memory:{step.id}")

    return touch


def _revert(steps: Sequence[Step], reason: str) -> None:
    """Make the versions that the steps name the current ones again, each as a new version."""
    memories = Memory.objects.in_bulk([step.id for step in steps])
    states = states_at({step.id: step.to_version or 1 for step in steps})
    for step in steps:
        existing = Existing.of(memories[step.id])
        standing = Standing.model_validate(step.after) if step.after else ACCEPTED
        append_version(existing, states[step.id], base=step.to_version or 1, reason=reason, key=None, standing=standing)


def _review(steps: Sequence[Step], reason: str) -> None:
    memories = Memory.objects.in_bulk([step.id for step in steps])
    for step in steps:
        memory = memories[step.id]
        payload = MemoryReviewed(
            memory_id=step.id,
            verdict=Verdict.WITHDRAWN,
            version=memory.version,
            stands=memory.version,
            reason=reason,
            before=standing_of(memory),
            after=Standing.model_validate(step.after),
        )
        log.append(log.prepare(MEMORY_REVIEWED, payload), stream=f"memory:{step.id}")


def states_at(versions: dict[int, int]) -> dict[int, MemoryState]:
    """Return what each memory was at a version."""
    found = rows.fetch(_STATES, [json.dumps(versions)])
    return {memory_id: _state(json.loads(payload or "{}")) for memory_id, payload in found}


def _state(payload: dict[str, Any]) -> MemoryState:
    return MemoryState(**{name: value for name, value in payload.items() if name in MemoryState.model_fields})


def _relate(steps: Sequence[Step], _: str) -> None:
    made = relations_as_made(step.id for step in steps)
    for step in steps:
        log.append(log.prepare(RELATION_CREATED, made[step.id]), entity="relation")


def relations_as_made(ids: Iterable[int]) -> dict[int, RelationCreated]:
    """Return relations as the log has them, for those that are gone; without those that were erased."""
    events = RawEvent.objects.filter(position__in=list(ids), event_type=RELATION_CREATED.name)
    return {each.position: RelationCreated(**json.loads(each.payload_json)) for each in events if each.payload_json}


def _unrelate(steps: Sequence[Step], reason: str) -> None:
    for step in steps:
        draft = log.prepare(RELATION_DELETED, RelationDeleted(relation_id=step.id, reason=reason))
        log.append(draft, stream=f"relation:{step.id}")


def _configure(steps: Sequence[Step], _: str) -> None:
    for step in steps:
        payload = ProjectConfigured(settings={step.name: step.after})
        log.append(log.prepare(PROJECT_CONFIGURED, payload), stream="project")


def _describe(steps: Sequence[Step], _: str) -> None:
    for step in steps:
        log.append(log.prepare(PROJECT_DESCRIBED, ProjectDescribed(**{step.name: step.after})), stream="project")


def _mark(steps: Sequence[Step], reason: str) -> None:
    standing = heads([step.id for step in steps])
    for step in steps:
        status = _status(step.after, stands=standing.get(step.id) == [step.id])
        draft = log.prepare(DECISION_MARKED, DecisionMarked(decision_id=step.id, status=status, reason=reason))
        log.append(draft, stream=f"decision:{step.id}")


def _status(wanted: str, *, stands: bool) -> DecisionStatus:
    """Return the status that a decision can have: what is superseded does not stand, whatever was said of it."""
    status = DecisionStatus(wanted)
    if status in (DecisionStatus.DEPRECATED, DecisionStatus.REJECTED):
        return status
    if not stands:
        return DecisionStatus.SUPERSEDED
    return DecisionStatus.ACCEPTED if status is DecisionStatus.SUPERSEDED else status


_DOING: dict[str, Callable[[Sequence[Step], str], None]] = {
    "quarantine": _quarantine,
    "lift": _lift,
    "delete": _touching(MEMORY_DELETED),
    "unrelate": _unrelate,
    "restore": _touching(MEMORY_RESTORED),
    "revert": _revert,
    "review": _review,
    "relate": _relate,
    "configure": _configure,
    "describe": _describe,
    "mark": _mark,
}
