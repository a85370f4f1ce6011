"""Reverse changes to settings, statuses and memories: plan the steps, and execute them."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

from governance.rollback.selectors import NEVER, MemoryNow, clean_versions, memories_now, review_states_of, rivals
from memories.duplicates import Existing, review_status_of
from memories.events import (
    ACCEPTED,
    MEMORY_REVIEWED,
    MEMORY_WRITTEN,
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
from memories.services.revise import append_version
from memoryhub.core import log
from memoryhub.core.events.event_types import EventType, rollback_groups, types_reversed_by
from memoryhub.core.events.rollback import Apply, Effect, Left, Own, Reach, Step, Treatment, Values, effects
from memoryhub.core.log.quarantine import (
    QUARANTINE_LIFTED,
    QUARANTINE_PLACED,
    QuarantineLifted,
    QuarantinePlaced,
    quarantined_among,
)
from memoryhub.core.models import RawEvent
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import TEXTS, int_entries

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


_PAYLOADS = (
    f"SELECT position, actor, payload_json FROM raw_events WHERE event_type IN {TEXTS} {{}} "
    "AND payload_json IS NOT NULL ORDER BY position"
)
_ASIDE = "already in quarantine"


@dataclass(slots=True)
class ValueHistory:
    # Position, actor and value, in order
    values: list[tuple[int, str, Any]] = field(default_factory=list)

    def add(self, position: int, actor: str, value: Any) -> None:
        self.values.append((position, actor, value))

    def last(self) -> tuple[int, str, Any]:
        return self.values[-1]

    def is_by(self, positions: Collection[int]) -> bool:
        return any(position in positions for position, _, _ in self.values)

    def without(self, void: frozenset[int]) -> ValueHistory:
        return ValueHistory([entry for entry in self.values if entry[0] not in void])

    def clean(self, rolled_back: frozenset[int], before: int, default: Any) -> Any:
        kept = [value for position, _, value in self.values if position not in rolled_back and position < before]
        return kept[-1] if kept else default


def value_histories(effect: Effect, ids: Iterable[int] = ()) -> dict[Any, ValueHistory]:
    """Return the history of each value that an effect handles, by name or by id.

    Args:
        effect: one with ``values``.
        ids: of memories or decisions, if the values belong to such.
    """
    values = values_of(effect)
    histories: dict[Any, ValueHistory] = {}
    types = json.dumps([*values.also, *(event_type.name for event_type in types_reversed_by(effect.step))])
    parameters = (
        [types, json.dumps([f"{values.thing}:{thing_id}" for thing_id in sorted(ids)])] if values.thing else [types]
    )
    sql = _PAYLOADS.format(f"AND stream_id IN {TEXTS}" if values.thing else "")
    for position, actor, payload in rows.fetch(sql, parameters):
        for key, value in values.read(position, json.loads(payload)).items():
            histories.setdefault(key, ValueHistory()).add(position, actor, value)
    return histories


def values_of(effect: Effect) -> Values:
    if effect.values is None:
        raise TypeError(f"effect {effect.step!r} has no values")
    return effect.values


def plan_values(effect: Effect, reach: Reach) -> Iterator[Step | Left]:
    rules, thing = rollback_groups(), values_of(effect).thing
    touched = {
        key for name, ids in reach.things.items() for key in ids if name in rules and rules[name].by == effect.step
    }
    if not thing:
        yield from _taken_back(effect, value_histories(effect) if touched else {}, reach)
        return
    created = (name for name, rule in rules.items() if rule.thing == thing and rule.treatment is Treatment.SET_ASIDE)
    touched -= {thing_id for name in created for thing_id in reach.things[name]}
    yield from (Left(id=thing_id, why=_ASIDE) for thing_id in touched & {*reach.aside})
    histories = value_histories(effect, touched - {*reach.aside})
    yield from _taken_back(effect, histories, reach)
    for thing_id in touched - {*reach.aside}:
        if thing_id not in histories or not histories[thing_id].is_by(reach.rolled_back):
            yield Left(id=thing_id, why=values_of(effect).unset)


def _taken_back(effect: Effect, histories: Mapping[Any, ValueHistory], reach: Reach) -> Iterator[Step | Left]:
    for key, complete in histories.items():
        history = complete.without(reach.void)
        own = [position for position, _, _ in history.values if position in reach.rolled_back]
        if not own:
            continue
        position, actor, value = history.last()
        thing = {"id": key} if isinstance(key, int) else {"name": key}
        changed = position not in reach.rolled_back
        if changed and not reach.include_changed:
            yield Left(id=thing.get("id", 0), title=str(key), why=f"changed since by {actor} at #{position}")
            continue
        default = values_of(effect).default(key)
        after = history.clean(reach.rolled_back, own[0] if changed else position, default)
        if after != value:
            yield Step(do=effect.step, before=value, after=after, **thing)


def undo_values(effect: Effect, steps: Sequence[Step], own: Own) -> Iterator[Step | Left]:
    ids = [step.id for step in steps if step.id]
    aside = quarantined_among(ids)
    histories = value_histories(effect, ids) if steps else {}
    yield from (Left(id=thing_id, why="in quarantine since") for thing_id in aside)
    for step in steps:
        if step.id in aside:
            continue
        history = histories.get(step.id or step.name, ValueHistory()).without(own.void)
        if not history.values:
            yield Left(id=step.id, title=step.name, why="erased since")
            continue
        position, actor, _ = history.last()
        if position in own.positions:
            yield Step(do=step.do, id=step.id, name=step.name, before=step.after, after=step.before)
        else:
            yield Left(id=step.id, title=step.name, why=f"changed since by {actor} at #{position}")


def memory_groups() -> list[str]:
    by_name = effects()
    return [name for name, rule in rollback_groups().items() if rule.by and by_name[rule.by].plan is plan_memories]


def plan_memories(reach: Reach) -> Iterator[Step | Left]:
    touched = {memory_id for name in memory_groups() for memory_id in reach.things[name]}
    reached = {
        memory_id for memory_id in touched if reach.include_changed or f"memory:{memory_id}" not in reach.changed
    }
    yield from (Left(id=memory_id, why=_ASIDE) for memory_id in reached & {*reach.aside})
    memories = memories_now(reached - {*reach.aside})
    yield from MemoryReversal(
        memories=memories,
        created=reach.things[MEMORY_WRITTEN.rollback.group],
        limits={
            memory_id: reach.firsts[f"memory:{memory_id}"]
            for memory_id in memories
            if f"memory:{memory_id}" in reach.changed
        },
        ignored=reach.rolled_back | reach.void,
        going=reach.going,
    ).parts()


@dataclass(frozen=True)
class MemoryReversal:
    # The memories in the plan
    memories: Mapping[int, MemoryNow]
    # Those that the events created: they are deleted and keep their text
    created: Collection[int]
    # Position from which on later changes by others are undone too, by memory
    limits: Mapping[int, int]
    # Positions of events that don't count
    ignored: Collection[int]
    # Ids that the plan quarantines
    going: Collection[int]

    def parts(self) -> Iterator[Step | Left]:
        for memory_id, memory in self.memories.items():
            if memory_id in self._taken:
                rival = self._taken[memory_id]
                yield Left(id=memory_id, why=f"#{rival} has its topic or title now; change or delete that first")
            else:
                yield from self._steps(memory)

    def _steps(self, memory: MemoryNow) -> Iterator[Step]:
        if memory.deleted and not self._stays_deleted(memory):
            yield Step(do="restore", id=memory.id)
        elif not memory.deleted and self._stays_deleted(memory):
            yield Step(do="delete", id=memory.id, from_version=memory.version)
        if memory.id in self._review_states:
            yield from self._of_text(memory)

    def _of_text(self, memory: MemoryNow) -> Iterator[Step]:
        before, after = self._review_states[memory.id]
        review = {"before": before.model_dump(mode="json"), "after": after.model_dump(mode="json")}
        version = self._versions[memory.id]
        if version != memory.version:
            yield Step(do="revert", id=memory.id, from_version=memory.version, to_version=version, **review)
        elif before != after:
            yield Step(do="review", id=memory.id, **review)

    def _stays_deleted(self, memory: MemoryNow) -> bool:
        if memory.id in self.created:
            return True
        return memory.deletions.before(self.limits.get(memory.id, NEVER), self.ignored, False)

    @cached_property
    def _versions(self) -> dict[int, int]:
        changed = {
            memory_id: self.limits.get(memory_id, NEVER) for memory_id in self.memories if memory_id not in self.created
        }
        clean = clean_versions(changed, self.ignored)
        return {memory_id: clean.get(memory_id, memory.version) for memory_id, memory in self.memories.items()}

    @cached_property
    def _review_states(self) -> dict[int, tuple[ReviewStatus, ReviewStatus]]:
        ids = [memory_id for memory_id in self.memories if memory_id not in self.created]
        histories = review_states_of(ids)
        now = {memory.id: review_status_of(memory) for memory in Memory.objects.filter(id__in=ids)}
        return {
            memory_id: (
                now[memory_id],
                histories[memory_id].before(self.limits.get(memory_id, NEVER), self.ignored, ACCEPTED),
            )
            for memory_id in ids
        }

    # One by one: a memory that can't get its former name back keeps the present one, which another may need
    @cached_property
    def _taken(self) -> dict[int, int]:
        lasting = {memory_id: memory for memory_id, memory in self.memories.items() if not self._stays_deleted(memory)}
        states = states_at({memory_id: self._versions[memory_id] for memory_id in lasting})
        renamed = {
            memory_id: memory.named(states.get(memory_id))
            for memory_id, memory in lasting.items()
            if memory.deleted or self._is_renamed(memory, states.get(memory_id))
        }
        leaving = {*self.going, *(memory_id for memory_id in self.memories if memory_id not in lasting)}
        taken: dict[int, int] = {}
        while found := rivals(renamed.values(), leaving | set(renamed)):
            taken |= found
            renamed = {memory_id: name for memory_id, name in renamed.items() if memory_id not in found}
        return taken

    def _is_renamed(self, memory: MemoryNow, state: MemoryState | None) -> bool:
        return state is not None and memory.named(state) != memory.named()
