"""Reverse changes to memories, relations, quarantine and values: plan the steps, execute them, and undo them.

Apps declare effects on other things beside their events.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, starmap
from typing import Any, NamedTuple

from django.db.models.expressions import RawSQL

from governance.rollback.selectors import (
    NEVER,
    History,
    changed_since,
    clean_versions,
    deletion_histories,
    events_of,
    ids_of,
    listed,
    name_of,
    review_histories,
    rivals,
    unchanged,
    value_histories,
    values_of,
)
from memories.duplicates import Existing, review_status_of
from memories.events import (
    ACCEPTED,
    MEMORY_DELETED,
    MEMORY_RESTORED,
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
from memories.models import ACYCLIC, Memory, MemoryVersion, Relation, statement
from memories.selectors.versions import provenance_at
from memories.services.revise import append_version
from memoryhub.core import log
from memoryhub.core.entities import find_entities
from memoryhub.core.events.event_types import EventType, require_effects, rollback_groups
from memoryhub.core.events.rollback import Apply, Effect, Left, Own, Reach, Step, Treatment, define_effect, effects
from memoryhub.core.log.quarantine import (
    QUARANTINE_LIFTED,
    QUARANTINE_PLACED,
    QuarantineLifted,
    QuarantinePlaced,
    quarantined_among,
)
from memoryhub.core.log.read import as_parameter, entity_of
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS, json_int

_PLACED = f"SELECT id FROM quarantine WHERE placed_by = %s AND id IN {IDS}"
_QUARANTINED_BEFORE = "already in quarantine"
_INVERSE = {"delete": "restore", "restore": "delete", "revert": "revert", "review": "review"}


def quarantine(steps: Sequence[Step], reason: str) -> None:
    payload = QuarantinePlaced(ids=ids_of(steps), reason=reason)
    log.append(log.prepare(QUARANTINE_PLACED, payload), stream="quarantine")


def lift(steps: Sequence[Step], reason: str) -> None:
    payload = QuarantineLifted(ids=ids_of(steps), reason=reason)
    log.append(log.prepare(QUARANTINE_LIFTED, payload), stream="quarantine")


def undo_quarantine(steps: Sequence[Step], undone: Own) -> Iterator[Step | Left]:
    ids = ids_of(steps)
    in_quarantine = set(rows.column(_PLACED, [undone.positions.start, listed(ids)]))
    for thing_id in ids:
        if thing_id in in_quarantine:
            yield Step(do="lift", id=thing_id)
        else:
            yield Left(id=thing_id, why="released or erased since")


def undo_nothing(_steps: Sequence[Step], _undone: Own) -> Iterator[Step | Left]:
    yield from ()


def plan_values(effect: Effect, reach: Reach) -> Iterator[Step | Left]:
    rules = rollback_groups()
    thing = values_of(effect).thing
    touched: set[Any] = set()
    created: set[int] = set()
    for name, ids in reach.things.items():
        if name in rules and rules[name].by == effect.step:
            touched |= set(ids)
        elif name in rules and rules[name].thing == thing and rules[name].treatment is Treatment.SET_ASIDE:
            created |= set(ids)
    if not thing:
        yield from _taken_back(effect, value_histories(effect) if touched else {}, reach)
        return
    touched -= created
    quarantined = touched & set(reach.aside)
    yield from unchanged(quarantined, _QUARANTINED_BEFORE)
    touched -= quarantined
    histories = value_histories(effect, touched)
    yield from _taken_back(effect, histories, reach)
    for thing_id in touched:
        changes = histories.get(thing_id, History()).changes
        if reach.rolled_back.isdisjoint(change.position for change in changes):
            yield Left(id=thing_id, why=values_of(effect).unset)


def _taken_back(effect: Effect, histories: Mapping[Any, History[Any]], reach: Reach) -> Iterator[Step | Left]:
    for key, complete in histories.items():
        history = complete.without(reach.void)
        rolled_back = [change.position for change in history.changes if change.position in reach.rolled_back]
        if not rolled_back:
            continue
        position, actor, value = history.changes[-1]
        thing = {"id": key} if isinstance(key, int) else {"name": key}
        limit = position
        if position not in reach.rolled_back:
            if not reach.include_changed:
                yield Left(id=thing.get("id", 0), title=str(key), why=f"changed since by {actor} at #{position}")
                continue
            limit = rolled_back[0]
        after = history.before(limit, reach.rolled_back, values_of(effect).default(key))
        if after != value:
            yield Step(do=effect.step, before=value, after=after, **thing)


def undo_values(effect: Effect, steps: Sequence[Step], undone: Own) -> Iterator[Step | Left]:
    if not steps:
        return
    ids = [step.id for step in steps if step.id]
    aside = quarantined_among(ids)
    histories = value_histories(effect, ids)
    yield from unchanged(aside, "in quarantine since")
    for step in steps:
        if step.id in aside:
            continue
        history = histories.get(step.id or step.name, History()).without(undone.void)
        if not history.changes:
            yield Left(id=step.id, title=step.name, why="erased since")
            continue
        position, actor, _ = history.changes[-1]
        if position in undone.positions:
            yield Step(do=step.do, id=step.id, name=step.name, before=step.after, after=step.before)
        else:
            yield Left(id=step.id, title=step.name, why=f"changed since by {actor} at #{position}")


def append_to_memories(event_type: EventType[MemoryTouched]) -> Apply:
    def append(steps: Sequence[Step], reason: str) -> None:
        for step in steps:
            draft = log.prepare(event_type, MemoryTouched(memory_id=step.id, reason=reason))
            log.append(draft, stream=f"memory:{step.id}")

    return append


def revert(steps: Sequence[Step], reason: str) -> None:
    memories = Memory.objects.in_bulk(ids_of(steps))
    states = _states_at({step.id: step.to_version or 1 for step in steps})
    for step in steps:
        existing = Existing.of(memories[step.id])
        status = ReviewStatus.model_validate(step.after or ACCEPTED)
        version = step.to_version or 1
        provenance = provenance_at(step.id, version)
        append_version(existing, states[step.id], base=version, reason=reason, review=status, provenance=provenance)


def review(steps: Sequence[Step], reason: str) -> None:
    memories = Memory.objects.in_bulk(ids_of(steps))
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


def _states_at(versions: dict[int, int]) -> dict[int, MemoryState]:
    rows_of_memories = MemoryVersion.objects.filter(memory_id__in=as_parameter(IDS, versions))
    columns = rows_of_memories.values_list("id", "memory_id", "version")
    memory_ids = {position: memory for position, memory, version in columns if versions[memory] == version}
    payloads = log.events().at(memory_ids).payloads()
    states = {}
    for position, memory_id in memory_ids.items():
        states[memory_id] = MemoryState.of_stored(payloads.get(position, {}))
    return states


def memory_groups() -> list[str]:
    by_name = effects()
    return [name for name, rule in rollback_groups().items() if rule.by and by_name[rule.by].plan is plan_memories]


def plan_memories(reach: Reach) -> Iterator[Step | Left]:
    reached = set(chain.from_iterable(reach.things[name] for name in memory_groups()))
    changed = {memory_id for memory_id in reached if f"memory:{memory_id}" in reach.changed}
    if not reach.include_changed:
        reached -= changed
    quarantined = reached & set(reach.aside)
    yield from unchanged(quarantined, _QUARANTINED_BEFORE)
    memories = Memory.objects.in_bulk(reached - quarantined)
    # Positions from which on later changes by others are undone too
    limits = dict.fromkeys(memories, NEVER)
    for memory_id in changed & memories.keys():
        limits[memory_id] = reach.firsts[f"memory:{memory_id}"]
    ignored = reach.rolled_back | reach.void
    # What the events created is deleted, and keeps its text
    deleted = memories.keys() & reach.things[MEMORY_WRITTEN.rollback.group]
    reviews = {}
    for memory_id, reviewed in review_histories(memories.keys() - deleted).items():
        reviews[memory_id] = reviewed.before(limits[memory_id], ignored, ACCEPTED)
    versions = {memory_id: memory.version for memory_id, memory in memories.items()}
    versions |= clean_versions({memory_id: limits[memory_id] for memory_id in reviews}, ignored)
    for memory_id, deletions in deletion_histories(memories).items():
        if deletions.before(limits[memory_id], ignored, False):
            deleted.add(memory_id)
    lasting = [memory for memory in memories.values() if memory.id not in deleted]
    restored = {memory.id for memory in lasting if memory.deleted_at}
    occupied = _find_rivals(lasting, versions, restored, {*reach.going, *deleted})
    for memory_id, memory in memories.items():
        if memory_id in occupied:
            yield _occupied(memory_id, occupied[memory_id])
        else:
            status = reviews.get(memory_id)
            yield from _memory_steps(memory, versions[memory_id], status, is_deleted=memory_id in deleted)


def _memory_steps(memory: Memory, version: int, status: ReviewStatus | None, *, is_deleted: bool) -> Iterator[Step]:
    if memory.deleted_at and not is_deleted:
        yield Step(do="restore", id=memory.id)
    elif is_deleted and not memory.deleted_at:
        yield Step(do="delete", id=memory.id, from_version=memory.version)
    if status is None:
        return
    present_status = review_status_of(memory)
    review = {"before": present_status.model_dump(mode="json"), "after": status.model_dump(mode="json")}
    if version != memory.version:
        yield Step(do="revert", id=memory.id, from_version=memory.version, to_version=version, **review)
    elif present_status != status:
        yield Step(do="review", id=memory.id, **review)


def _find_rivals(
    memories: Sequence[Memory], versions: dict[int, int], restored: Collection[int], leaving: set[int]
) -> dict[int, int]:
    """Map memories that can't have their names to the live memories that occupy these.

    Args:
        memories: those that stay or come back.
        versions: the version that each gets, if it gets another.
        restored: ids of those that come back.
        leaving: ids that are deleted or quarantined.
    """
    states = _states_at({memory.id: versions[memory.id] for memory in memories if memory.id in versions})
    names = {}
    for memory in memories:
        name = name_of(memory, states.get(memory.id))
        if memory.id in restored or (not memory.deleted_at and name != name_of(memory)):
            names[memory.id] = name
    occupied: dict[int, int] = {}
    # One by one: a memory that can't get its former name back keeps the present one, which another may need
    while holders := rivals(names.values(), leaving | set(names)):
        occupied |= holders
        names = {memory_id: name for memory_id, name in names.items() if memory_id not in holders}
    return occupied


def _occupied(memory_id: int, rival: int) -> Left:
    return Left(id=memory_id, why=f"#{rival} has its topic or title now; change or delete that first")


def undo_memories(steps: Sequence[Step], undone: Own) -> Iterator[Step | Left]:
    ids = set(ids_of(steps))
    memories = Memory.objects.in_bulk(ids)
    streams = {f"memory:{memory_id}": undone.positions.start for memory_id in ids}
    why: dict[int, str] = {}
    for stream, note in changed_since(streams, undone.positions, undone.void).items():
        why[int(stream.partition(":")[2])] = note
    why |= dict.fromkeys(quarantined_among(sorted(ids)), "quarantined since")
    why |= dict.fromkeys(ids - memories.keys(), "erased since")
    yield from (Left(id=memory_id, why=note) for memory_id, note in why.items())
    steps = [step for step in steps if step.id not in why]
    going = {step.id for step in steps if step.do == "restore"}
    restored = {step.id for step in steps if step.do == "delete" and memories[step.id].deleted_at}
    versions = {step.id: step.from_version or 1 for step in steps if step.do == "revert"}
    staying = [memories[memory_id] for memory_id in set(ids_of(steps)) - going]
    occupied = _find_rivals(staying, versions, restored, going)
    yield from (_occupied(memory_id, rival) for memory_id, rival in occupied.items())
    for step in steps:
        if step.id not in occupied:
            inverse = Step(do=_INVERSE[step.do], id=step.id, before=step.after, after=step.before)
            if step.do == "revert":
                inverse.from_version = memories[step.id].version
                inverse.to_version = step.from_version
            yield inverse


Statement = tuple[str, int, int]


class RelationChange(NamedTuple):
    position: int
    actor: str
    is_created: bool
    relation_id: int


# Recreates relations that rolled-back events removed. A recreated relation has a new id, so its source, target and
# type are compared (decision 35).
def plan_relations(reach: Reach) -> Iterator[Step | Left]:
    removed = set(reach.things[RELATION_DELETED.rollback.group])
    histories = _relation_histories(removed, reach.void)
    erased = set(removed)
    for changes in histories.values():
        erased -= {change.relation_id for change in changes}
    yield from unchanged(erased, "erased since", title="Relation")
    recreated: list[int] = []
    for changes in histories.values():
        decided = _relation_to_recreate(changes, reach)
        if isinstance(decided, Left):
            yield decided
        elif decided is not None:
            recreated.append(decided)
    yield from _possible_relations(recreated, reach.going)


# When each relation equal to one of these in ends and type was created and removed
def _relation_histories(relation_ids: set[int], void: Collection[int]) -> dict[Statement, list[RelationChange]]:
    removed = log.events().at(relation_ids).of_type(RELATION_CREATED).payloads().values()
    histories: dict[Statement, list[RelationChange]] = {_statement_in(payload): [] for payload in removed}
    statements = {}
    changes = []
    for event in _relations_between({end for _, *ends in histories for end in ends}):
        stated = _statement_in(json.loads(event.payload_json or ""))
        if stated in histories:
            statements[event.position] = stated
            changes.append(RelationChange(event.position, event.actor, True, event.position))
    quarantined = quarantined_among(list(statements))
    changes = [change for change in changes if change.position not in quarantined]
    for event in events_of("relation", statements).of_type(RELATION_DELETED):
        changes.append(RelationChange(event.position, event.actor, False, entity_of(event)))
    for change in sorted(changes):
        if change.position not in void:
            histories[statements[change.relation_id]].append(change)
    return histories


def _statement_in(payload: Mapping[str, Any]) -> Statement:
    return statement(payload["relation"], payload["source_id"], payload["target_id"])


# The events that created relations with both ends among these
def _relations_between(ends: Iterable[int]) -> log.EventQuerySet:
    created = log.events().of_type(RELATION_CREATED).readable()
    for name in ("source_id", "target_id"):
        end = RawSQL(rows.rendered(json_int("payload_json", name)), [])  # noqa: S611 - a constant
        created = created.alias(**{name: end}).filter(**{f"{name}__in": as_parameter(IDS, ends)})
    return created


# The relation to recreate, why not, or None if there should be none
def _relation_to_recreate(changes: list[RelationChange], reach: Reach) -> int | Left | None:
    rolled_back = [change for change in changes if change.position in reach.rolled_back]
    removal = next((change for change in rolled_back if not change.is_created), None)
    if removal is None:
        return None
    last = changes[-1]
    if last.position not in reach.rolled_back:
        if not reach.include_changed:
            why = f"changed since by {last.actor} at #{last.position}"
            return Left(id=removal.relation_id, title="Relation", why=why)
        changes = changes[: changes.index(rolled_back[0])]
    for change in reversed(changes):
        if change.position not in reach.rolled_back:
            return change.relation_id if change.is_created else None
    return None


def _possible_relations(relation_ids: Sequence[int], going: Collection[int]) -> Iterator[Step | Left]:
    relations = _created_relations(relation_ids)
    ends: set[int] = set()
    for relation in relations.values():
        ends |= {relation.source_id, relation.target_id}
    existing_ends = set(find_entities(ends))
    staying = Relation.objects.exclude(id__in=as_parameter(IDS, going))
    present: list[Statement] = list(staying.values_list("relation", "source_id", "target_id"))
    existing = set(starmap(statement, present))
    for relation_id in sorted(relations, reverse=True):
        relation = relations[relation_id]
        row = (relation.relation, relation.source_id, relation.target_id)
        if not {relation.source_id, relation.target_id} <= existing_ends:
            yield Left(id=relation_id, title="Relation", why="one of its ends no longer exists")
        elif statement(*row) in existing:
            continue
        elif _closes_cycle(row, present):
            yield Left(id=relation_id, title="Relation", why="it would close a cycle with newer relations")
        else:
            present.append(row)
            yield Step(do="relate", id=relation_id)


def _closes_cycle(row: Statement, present: Sequence[Statement]) -> bool:
    relation, source, target = row
    if relation not in ACYCLIC:
        return False
    reached = {target}
    waiting = [target]
    while waiting:
        here = waiting.pop()
        further = {end for name, start, end in present if name == relation and start == here} - reached
        reached |= further
        waiting += further
    return source in reached


def relate(steps: Sequence[Step], _: str) -> None:
    relations = _created_relations(ids_of(steps))
    for step in steps:
        log.append(log.prepare(RELATION_CREATED, relations[step.id]), entity="relation")


def _created_relations(ids: Iterable[int]) -> dict[int, RelationCreated]:
    payloads = log.events().at(ids).of_type(RELATION_CREATED).payloads()
    return {position: RelationCreated(**payload) for position, payload in payloads.items()}


def unrelate(steps: Sequence[Step], reason: str) -> None:
    for step in steps:
        draft = log.prepare(RELATION_DELETED, RelationDeleted(relation_id=step.id, reason=reason))
        log.append(draft, stream=f"relation:{step.id}")


def undo_relations(steps: Sequence[Step], undone: Own) -> Iterator[Step | Left]:
    if not steps:
        return
    restored = Relation.objects.filter(id__in=as_parameter(IDS, undone.positions)).values_list("id", flat=True)
    for relation_id in restored:
        yield Step(do="unrelate", id=relation_id)
    removed = len(steps) - len(restored)
    if removed > 0:
        yield Left(title="Relations", why=f"{removed} of the restored relations were removed since")


_put_memories_back = partial(Effect, plan=plan_memories, undo=undo_memories)
# In this order: names are freed before others take them, and decisions are in force before one is marked
for _effect in (
    Effect("quarantine", 10, "quarantined", apply=quarantine, undo=undo_quarantine, in_one_event=True),
    _put_memories_back("delete", 20, "deleted", apply=append_to_memories(MEMORY_DELETED)),
    Effect("unrelate", 30, "no longer related", apply=unrelate, undo=undo_nothing),
    _put_memories_back("revert", 40, "reverted to an earlier version", apply=revert),
    _put_memories_back("restore", 50, "restored", apply=append_to_memories(MEMORY_RESTORED)),
    Effect("lift", 60, "released from quarantine", apply=lift, undo=undo_nothing, in_one_event=True),
    _put_memories_back("review", 70, "review restored", apply=review),
    Effect("relate", 80, "related again", apply=relate, plan=plan_relations, undo=undo_relations),
):
    define_effect(_effect)

# Here, because this module is imported last, when every app has defined its event types and effects (decision 40)
require_effects()
