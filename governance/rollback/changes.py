"""Putting values back that events set, by effects with ``values``: settings, the description, a decision's status."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from governance.rollback.execute import states_at
from governance.rollback.state import NEVER, MemoryNow, clean_versions, memories_now, review_states_of, rivals
from memories.duplicates import review_status_of
from memories.events import MEMORY_WRITTEN, MemoryState, ReviewStatus
from memories.models import Memory
from memories.projectors.memories import ACCEPTED
from memoryhub.core.events.event_types import rollback_groups, types_reversed_by
from memoryhub.core.events.rollback import Effect, Left, Own, Reach, Step, Treatment, Values, effects
from memoryhub.core.log.quarantine import quarantined_among
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import TEXTS

_PAYLOADS = (
    f"SELECT position, actor, payload_json FROM raw_events WHERE event_type IN {TEXTS} {{}} "
    "AND payload_json IS NOT NULL ORDER BY position"
)
_ASIDE = "in quarantine already"


@dataclass(slots=True)
class ValueHistory:
    """What one name was said to be, one after the other."""

    said: list[tuple[int, str, Any]] = field(default_factory=list)
    """Position, actor and value."""

    def add(self, position: int, actor: str, value: Any) -> None:
        """Take in the next."""
        self.said.append((position, actor, value))

    def last(self) -> tuple[int, str, Any]:
        """Return the last."""
        return self.said[-1]

    def is_by(self, positions: Collection[int]) -> bool:
        """Whether one of these events gave it a value."""
        return any(position in positions for position, _, _ in self.said)

    def without(self, void: frozenset[int]) -> ValueHistory:
        """Return it without what some positions said."""
        return ValueHistory([each for each in self.said if each[0] not in void])

    def clean(self, rolled_back: frozenset[int], before: int, default: Any) -> Any:
        """Return what was said last by events that are not rolled-back and stand before a position."""
        kept = [value for position, _, value in self.said if position not in rolled_back and position < before]
        return kept[-1] if kept else default


def value_histories(effect: Effect, ids: Iterable[int] = ()) -> dict[Any, ValueHistory]:
    """Return what events set each value of an effect to, by name or by the id of the thing.

    Args:
        effect: one with ``values``.
        ids: of the things; only where the values are those of things.
    """
    values = values_of(effect)
    told: dict[Any, ValueHistory] = {}
    types = json.dumps([*values.also, *(known.name for known in types_reversed_by(effect.step))])
    parameters = [types, json.dumps([f"{values.thing}:{each}" for each in sorted(ids)])] if values.thing else [types]
    sql = _PAYLOADS.format(f"AND stream_id IN {TEXTS}" if values.thing else "")
    for position, actor, payload in rows.fetch(sql, parameters):
        for key, value in values.read(position, json.loads(payload)).items():
            told.setdefault(key, ValueHistory()).add(position, actor, value)
    return told


def values_of(effect: Effect) -> Values:
    """Return how to read and write the values of an effect that has any."""
    if effect.values is None:
        raise TypeError(f"effect {effect.step!r} has no values")
    return effect.values


def plan_values(effect: Effect, reach: Reach) -> Iterator[Step | Left]:
    """Yield what gives values back that they had before the selection set them."""
    rules, thing = rollback_groups(), values_of(effect).thing
    touched = {
        key for name, ids in reach.things.items() for key in ids if name in rules and rules[name].by == effect.step
    }
    if not thing:
        yield from _taken_back(effect, value_histories(effect) if touched else {}, reach)
        return
    created = (name for name, rule in rules.items() if rule.thing == thing and rule.treatment is Treatment.SET_ASIDE)
    touched -= {each for name in created for each in reach.things[name]}
    yield from (Left(id=each, why=_ASIDE) for each in touched & {*reach.aside})
    told = value_histories(effect, touched - {*reach.aside})
    yield from _taken_back(effect, told, reach)
    for each in touched - {*reach.aside}:
        if each not in told or not told[each].is_by(reach.rolled_back):
            yield Left(id=each, why=values_of(effect).unset)


def _taken_back(effect: Effect, told: Mapping[Any, ValueHistory], reach: Reach) -> Iterator[Step | Left]:
    """Yield what makes each value what it was, and what is left since others set it again."""
    for key, every in told.items():
        history = every.without(reach.void)
        mine = [position for position, _, _ in history.said if position in reach.rolled_back]
        if not mine:
            continue
        position, actor, value = history.last()
        thing = {"id": key} if isinstance(key, int) else {"name": key}
        changed = position not in reach.rolled_back
        if changed and not reach.include_changed:
            yield Left(id=thing.get("id", 0), title=str(key), why=f"changed since by {actor} at #{position}")
            continue
        default = values_of(effect).default(key)
        after = history.clean(reach.rolled_back, mine[0] if changed else position, default)
        if after != value:
            yield Step(do=effect.step, before=value, after=after, **thing)


def undo_values(effect: Effect, steps: Sequence[Step], own: Own) -> Iterator[Step | Left]:
    """Yield what gives values back that a roll-back has put back, unless others set them since."""
    ids = [step.id for step in steps if step.id]
    aside = quarantined_among(ids)
    told = value_histories(effect, ids) if steps else {}
    yield from (Left(id=each, why="in quarantine since") for each in aside)
    for step in steps:
        if step.id in aside:
            continue
        history = told.get(step.id or step.name, ValueHistory()).without(own.void)
        if not history.said:
            yield Left(id=step.id, title=step.name, why="erased since")
            continue
        position, actor, _ = history.last()
        if position in own.positions:
            yield Step(do=step.do, id=step.id, name=step.name, before=step.after, after=step.before)
        else:
            yield Left(id=step.id, title=step.name, why=f"changed since by {actor} at #{position}")


def memory_groups() -> list[str]:
    """Return the groups that ``plan_memories`` takes back: text, deletion and review of memories."""
    known = effects()
    return [name for name, rule in rollback_groups().items() if rule.by and known[rule.by].plan is plan_memories]


def plan_memories(reach: Reach) -> Iterator[Step | Left]:
    """Yield what makes memories what they were without the selection; not those that others changed since."""
    touched = {memory_id for name in memory_groups() for memory_id in reach.things[name]}
    reached = {each for each in touched if reach.include_changed or f"memory:{each}" not in reach.changed}
    yield from (Left(id=each, why="in quarantine already") for each in reached & {*reach.aside})
    memories = memories_now(reached - {*reach.aside})
    yield from MemoryReversal(
        memories=memories,
        created=reach.things[MEMORY_WRITTEN.rollback.group],
        limits={each: reach.firsts[f"memory:{each}"] for each in memories if f"memory:{each}" in reach.changed},
        ignored=reach.rolled_back | reach.void,
        going=reach.going,
    ).parts()


@dataclass(frozen=True)
class MemoryReversal:
    """The steps that make memories what they were without some events."""

    memories: Mapping[int, MemoryNow]
    """Those that the events changed and that the plan reaches."""
    created: Collection[int]
    """Those of them that the events created: they are deleted, and keep their text."""
    limits: Mapping[int, int]
    """Where others' later changes are undone too: the position from which on nothing counts, by memory."""
    ignored: Collection[int]
    """Positions of events that do not count."""
    going: Collection[int]
    """Ids that the plan sets aside."""

    def parts(self) -> Iterator[Step | Left]:
        """Yield every step, and what is left because another memory has its name."""
        for each, memory in self.memories.items():
            if each in self._taken:
                rival = self._taken[each]
                yield Left(id=each, why=f"#{rival} has its topic or title now; change or delete that first")
            else:
                yield from self._steps(memory)

    def _steps(self, memory: MemoryNow) -> Iterator[Step]:
        if memory.deleted and not self._stays_deleted(memory):
            yield Step(do="restore", id=memory.id)
        elif not memory.deleted and self._stays_deleted(memory):
            yield Step(do="delete", id=memory.id, from_version=memory.version)
        if memory.id in self._standings:
            yield from self._of_text(memory)

    def _of_text(self, memory: MemoryNow) -> Iterator[Step]:
        before, after = self._standings[memory.id]
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
        """The version that each memory has afterwards."""
        changed = {each: self.limits.get(each, NEVER) for each in self.memories if each not in self.created}
        clean = clean_versions(changed, self.ignored)
        return {each: clean.get(each, memory.version) for each, memory in self.memories.items()}

    @cached_property
    def _standings(self) -> dict[int, tuple[ReviewStatus, ReviewStatus]]:
        """The review state of each memory that others created, now and afterwards."""
        ids = [each for each in self.memories if each not in self.created]
        histories = review_states_of(ids)
        now = {memory.id: review_status_of(memory) for memory in Memory.objects.filter(id__in=ids)}
        return {
            each: (now[each], histories[each].before(self.limits.get(each, NEVER), self.ignored, ACCEPTED))
            for each in ids
        }

    @cached_property
    def _taken(self) -> dict[int, int]:
        """Which memory has the name that one of these is to have afterwards."""
        lasting = {each: memory for each, memory in self.memories.items() if not self._stays_deleted(memory)}
        states = states_at({each: self._versions[each] for each in lasting})
        renamed = {
            each: memory.named(states.get(each))
            for each, memory in lasting.items()
            if memory.deleted or self._is_renamed(memory, states.get(each))
        }
        leaving = {*self.going, *(each for each in self.memories if each not in lasting)}
        taken: dict[int, int] = {}
        # What can't have its former name keeps the present one, which may be what another was to have.
        while found := rivals(renamed.values(), leaving | set(renamed)):
            taken |= found
            renamed = {each: name for each, name in renamed.items() if each not in found}
        return taken

    def _is_renamed(self, memory: MemoryNow, state: MemoryState | None) -> bool:
        return state is not None and memory.named(state) != memory.named()
