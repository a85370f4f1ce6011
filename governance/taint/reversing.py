"""Undoing what a selection did to memories: their text, their deletions and their review."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from governance.taint.perform import states_at
from governance.taint.standing import NEVER, MemoryNow, clean_versions, memories_now, rivals, standings_of
from memories.events import MEMORY_WRITTEN, MemoryState, Standing
from memories.existing import standing_of
from memories.models import Memory
from memories.projectors.review import ACCEPTED
from memoryhub.core.event_types import rollback_groups
from memoryhub.core.rollback import Left, Reach, Step, effects


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
        ignored=reach.tainted | reach.void,
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
    def _standings(self) -> dict[int, tuple[Standing, Standing]]:
        """The review state of each memory that others created, now and afterwards."""
        ids = [each for each in self.memories if each not in self.created]
        histories = standings_of(ids)
        now = {memory.id: standing_of(memory) for memory in Memory.objects.filter(id__in=ids)}
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
