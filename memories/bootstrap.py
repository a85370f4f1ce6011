"""Starter guidelines for the global scope; their texts are data, in ``bootstrap.toml``."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from memories.duplicates import Existing
from memories.events import MEMORY_DELETED
from memories.models import Memory, MemoryKind, MemoryScope, MemoryVersion
from memories.schemas import IfExists, MemoryRestore, MemoryTouch, MemoryUpdate, MemoryWrite, WriteStatus
from memories.services import delete_memory, restore_memory, update_memory, write_memories
from memoryhub.core import log
from memoryhub.core.backends.selected import stores
from memoryhub.core.errors import ConflictError
from memoryhub.core.kinds import GUIDELINE
from memoryhub.core.origin import use_origin
from memoryhub.core.stores.store import GLOBAL_STORE, use_store

# A guideline is found again by the idempotency key of the event that wrote it, which outlives later edits. What a
# person has edited or deleted is theirs: it is not updated, removed or restored.

# Actor of the events written here; a version by anyone else counts as an edit
ACTOR = "memory-hub bootstrap"
_FILE = Path(__file__).with_name("bootstrap.toml")


class GuidelineStatus(StrEnum):
    ADDED = "added"
    RENEWED = "renewed"
    RESTORED = "restored"
    UNCHANGED = "unchanged"
    REMOVED = "removed"
    EDITED = "kept, edited since"
    TAKEN = "left out, the name is taken"
    DELETED = "left deleted"


@dataclass(frozen=True, slots=True)
class GuidelineResult:
    name: str
    status: GuidelineStatus
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
    commands = {}
    for entry in tomllib.loads(_FILE.read_text("utf-8"))["guideline"]:
        key = f"bootstrap:{entry['key']}"
        examples = {"good": entry["good"], "bad": entry["bad"]}
        commands[key] = MemoryWrite(
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
            idempotency_key=key,
        )
    return commands


def load_guidelines() -> list[GuidelineResult]:
    """Bring the global scope's guidelines up to date. Idempotent.

    Adds missing ones, restores what ``remove_guidelines`` deleted, and updates those whose text has changed.
    """
    commands = guidelines()
    with use_store(GLOBAL_STORE, create=True), use_origin(actor=ACTOR), log.transaction():
        written = _written(list(commands))
        updated = []
        for key, guideline in written.items():
            name = guideline.memory.title if guideline.memory else commands[key].title
            updated.append(GuidelineResult(name, _update(guideline, commands[key]), guideline.id))
        added = []
        for result in write_memories(commands=[commands[key] for key in commands if key not in written]):
            is_new = result.status is WriteStatus.CREATED
            status = GuidelineStatus.ADDED if is_new else GuidelineStatus.TAKEN
            added.append(GuidelineResult(result.title, status, result.id))
        return [*added, *updated]


def remove_guidelines() -> list[GuidelineResult]:
    """Soft-delete the guidelines that nobody has edited."""
    if not stores.exists(GLOBAL_STORE):
        return []
    with use_store(GLOBAL_STORE), use_origin(actor=ACTOR), log.transaction():
        removed = []
        for guideline in _written(list(guidelines())).values():
            if guideline.memory and not guideline.memory.deleted_at:
                status = GuidelineStatus.EDITED
                if not guideline.edited:
                    touch = MemoryTouch(id=guideline.id, scope=MemoryScope.GLOBAL, reason="bootstrap --remove")
                    delete_memory(command=touch)
                    status = GuidelineStatus.REMOVED
                removed.append(GuidelineResult(guideline.memory.title, status, guideline.id))
        return removed


def _written(keys: list[str]) -> dict[str, _Guideline]:
    written = log.events().with_key(*keys)
    ids = written.positions()
    memories = Memory.objects.in_bulk(ids)
    edits = MemoryVersion.objects.filter(memory_id__in=ids).exclude(actor=ACTOR)
    edited = set(edits.values_list("memory_id", flat=True))
    deletions = log.events().of_stream(*(f"memory:{memory_id}" for memory_id in ids)).of_type(MEMORY_DELETED)
    # The last deletion of each stays
    deleted_by = dict(deletions.values_list("stream_id", "actor"))
    guidelines_by_key = {}
    for event in written:
        guidelines_by_key[event.idempotency_key or ""] = _Guideline(
            id=event.position,
            memory=memories.get(event.position),
            edited=event.position in edited,
            removed=deleted_by.get(event.stream_id) == ACTOR,
        )
    return guidelines_by_key


def _update(guideline: _Guideline, command: MemoryWrite) -> GuidelineStatus:
    if guideline.memory is None or (guideline.memory.deleted_at and not guideline.removed):
        return GuidelineStatus.DELETED
    if guideline.memory.deleted_at:
        try:
            restore_memory(command=MemoryRestore(id=guideline.id, scope=MemoryScope.GLOBAL))
        except ConflictError:
            return GuidelineStatus.TAKEN
        _renew(guideline.memory, command)
        return GuidelineStatus.RESTORED
    if guideline.edited:
        return GuidelineStatus.EDITED
    return GuidelineStatus.RENEWED if _renew(guideline.memory, command) else GuidelineStatus.UNCHANGED


def _renew(memory: Memory, command: MemoryWrite) -> bool:
    fields = command.model_dump(include={"title", "content", "type", "tags", "attributes"})
    current = Existing.of(memory)
    if not current.differs(current.state.with_changes(**fields)):
        return False
    update_memory(
        command=MemoryUpdate(id=memory.id, scope=MemoryScope.GLOBAL, change_reason="guideline text updated", **fields)
    )
    return True
