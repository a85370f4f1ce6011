"""Starter guidelines for the global scope; their texts are data, in ``bootstrap.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from memories.duplicates import Existing
from memories.events import MEMORY_DELETED, MemoryState
from memories.models import Memory, MemoryKind, MemoryScope, MemoryVersion
from memories.schemas import IfExists, MemoryRestore, MemoryTouch, MemoryUpdate, MemoryWrite, WriteResult, WriteStatus
from memories.services import delete_memory, restore_memory, update_memory, write_memories
from memoryhub.core import log
from memoryhub.core.backends.selected import stores
from memoryhub.core.errors import Conflict
from memoryhub.core.kinds import GUIDELINE
from memoryhub.core.models import RawEvent
from memoryhub.core.origin import use_origin
from memoryhub.core.stores.store import GLOBAL_STORE, use_store

# A guideline is found again by the idempotency key of the event that wrote it, which outlives later edits. What a
# person has edited or deleted is theirs: it is not updated, removed or restored.

# Actor of the events written here; a version by anyone else counts as an edit
ACTOR = "memory-hub bootstrap"
_FILE = Path(__file__).with_name("bootstrap.toml")


class Done(StrEnum):
    ADDED = "added"
    RENEWED = "renewed"
    RESTORED = "restored"
    UNCHANGED = "unchanged"
    REMOVED = "removed"
    EDITED = "kept, edited since"
    TAKEN = "left out, the name is taken"
    DELETED = "left deleted"


@dataclass(frozen=True, slots=True)
class Outcome:
    name: str
    done: Done
    id: int


@dataclass(frozen=True, slots=True)
class _Guideline:
    id: int
    # None once it was erased
    memory: Memory | None
    edited: bool
    # Deleted by this module, not by a person
    removed: bool


def guidelines() -> dict[str, MemoryWrite]:
    entries = tomllib.loads(_FILE.read_text("utf-8"))["guideline"]
    return {f"bootstrap:{entry['key']}": _command(entry) for entry in entries}


def load_guidelines() -> list[Outcome]:
    """Bring the global scope's guidelines up to date. Idempotent.

    Adds missing ones, restores what ``remove_guidelines`` deleted, and updates those whose text has changed.
    """
    commands = guidelines()
    with use_store(GLOBAL_STORE, create=True), use_origin(actor=ACTOR), log.transaction():
        written = _written(list(commands))
        outcomes = [_updated(guideline, commands[key]) for key, guideline in written.items()]
        return [*_add({key: command for key, command in commands.items() if key not in written}), *outcomes]


def remove_guidelines() -> list[Outcome]:
    """Soft-delete the guidelines that nobody has edited."""
    if not stores.exists(GLOBAL_STORE):
        return []
    with use_store(GLOBAL_STORE), use_origin(actor=ACTOR), log.transaction():
        written = _written(list(guidelines())).values()
        live = [guideline for guideline in written if guideline.memory and not guideline.memory.deleted_at]
        return [_remove(guideline) for guideline in live]


def _command(entry: Mapping[str, Any]) -> MemoryWrite:
    examples = {"good": entry["good"], "bad": entry["bad"]}
    return MemoryWrite(
        title=entry["name"],
        content=" ".join(entry["content"].split()),
        kind=MemoryKind(GUIDELINE.name),
        type=entry["category"],
        scope=MemoryScope.GLOBAL,
        attributes={"priority": entry["priority"], "rationale": entry["rationale"], "examples": examples},
        tags=entry["tags"],
        named=True,
        if_exists=IfExists.KEEP,
        source="memory-hub bootstrap",
        idempotency_key=f"bootstrap:{entry['key']}",
    )


def _written(keys: list[str]) -> dict[str, _Guideline]:
    positions = dict(RawEvent.objects.filter(idempotency_key__in=keys).values_list("idempotency_key", "position"))
    ids = list(positions.values())
    memories = Memory.objects.in_bulk(ids)
    edits = MemoryVersion.objects.filter(memory_id__in=ids).exclude(actor=ACTOR)
    edited = set(edits.values_list("memory_id", flat=True))
    removed = _removed_here(ids)
    return {
        key: _Guideline(memory_id, memories.get(memory_id), memory_id in edited, memory_id in removed)
        for key, memory_id in positions.items()
    }


def _removed_here(ids: list[int]) -> set[int]:
    streams = {f"memory:{memory_id}": memory_id for memory_id in ids}
    deletions = RawEvent.objects.filter(stream_id__in=list(streams), event_type=MEMORY_DELETED.name)
    last = dict(deletions.order_by("position").values_list("stream_id", "actor"))
    return {streams[stream] for stream, actor in last.items() if actor == ACTOR}


def _add(missing: Mapping[str, MemoryWrite]) -> list[Outcome]:
    commands = list(missing.values())
    return [_outcome_of(result) for result in write_memories(commands=commands)]


def _outcome_of(result: WriteResult) -> Outcome:
    return Outcome(result.title, Done.ADDED if result.status is WriteStatus.CREATED else Done.TAKEN, result.id)


def _updated(guideline: _Guideline, command: MemoryWrite) -> Outcome:
    name = guideline.memory.title if guideline.memory else command.title
    return Outcome(name, _update(guideline, command), guideline.id)


def _update(guideline: _Guideline, command: MemoryWrite) -> Done:
    if guideline.memory is None or (guideline.memory.deleted_at and not guideline.removed):
        return Done.DELETED
    if guideline.memory.deleted_at:
        return _restore(guideline.memory, command)
    if guideline.edited:
        return Done.EDITED
    return Done.RENEWED if _renew(guideline.memory, command) else Done.UNCHANGED


def _restore(memory: Memory, command: MemoryWrite) -> Done:
    try:
        restore_memory(command=MemoryRestore(id=memory.id, scope=MemoryScope.GLOBAL))
    except Conflict:
        return Done.TAKEN
    _renew(memory, command)
    return Done.RESTORED


def _renew(memory: Memory, command: MemoryWrite) -> bool:
    fields = command.model_dump(include={"title", "content", "type", "tags", "attributes"})
    current = Existing.of(memory)
    if not current.differs(MemoryState(**{**current.state.columns(), **fields})):
        return False
    update_memory(
        command=MemoryUpdate(id=memory.id, scope=MemoryScope.GLOBAL, change_reason="guideline text updated", **fields)
    )
    return True


def _remove(guideline: _Guideline) -> Outcome:
    name = guideline.memory.title if guideline.memory else ""
    if guideline.edited:
        return Outcome(name, Done.EDITED, guideline.id)
    delete_memory(command=MemoryTouch(id=guideline.id, scope=MemoryScope.GLOBAL, reason="bootstrap --remove"))
    return Outcome(name, Done.REMOVED, guideline.id)
