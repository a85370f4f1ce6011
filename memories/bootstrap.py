"""Guidelines to begin with, for the global scope; they are data, in ``bootstrap.toml``.

Each is known by the idempotency key of the event that wrote it, which stays whatever becomes of the guideline. What a
person edited or deleted is hers: it is neither renewed, nor removed, nor brought back.
"""

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
from memoryhub.core.errors import Conflict
from memoryhub.core.kinds.builtin import GUIDELINE
from memoryhub.core.models import RawEvent
from memoryhub.core.origin import use_origin
from memoryhub.core.stores.store import GLOBAL_STORE, use_store

ACTOR = "memory-hub bootstrap"
"""Who the events say has written them; a version by anybody else is an edit."""
_FILE = Path(__file__).with_name("bootstrap.toml")


class Done(StrEnum):
    """What became of one guideline."""

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
    """What was done with one guideline."""

    name: str
    done: Done
    id: int


@dataclass(frozen=True, slots=True)
class _Known:
    """A guideline that was written before."""

    id: int
    memory: Memory | None
    """None of one that was erased."""
    edited: bool
    removed: bool
    """Deleted by this module, and not by a person."""


def guidelines() -> dict[str, MemoryWrite]:
    """Return the guidelines by their keys, as commands that write them."""
    entries = tomllib.loads(_FILE.read_text("utf-8"))["guideline"]
    return {f"bootstrap:{entry['key']}": _command(entry) for entry in entries}


def load_guidelines() -> list[Outcome]:
    """Bring the global scope's guidelines up to date; doing it again changes nothing.

    What is missing is added, what ``remove_guidelines`` took away comes back, and what has a new text since is renewed.
    """
    wanted = guidelines()
    with use_store(GLOBAL_STORE, create=True), use_origin(actor=ACTOR), log.transaction():
        known = _known(list(wanted))
        outcomes = [_brought_up(each, wanted[key]) for key, each in known.items()]
        return [*_added({key: each for key, each in wanted.items() if key not in known}), *outcomes]


def remove_guidelines() -> list[Outcome]:
    """Delete the guidelines softly that nobody has edited."""
    if not GLOBAL_STORE.path.exists():
        return []
    with use_store(GLOBAL_STORE), use_origin(actor=ACTOR), log.transaction():
        known = _known(list(guidelines()))
        live = [each for each in known.values() if each.memory and not each.memory.deleted_at]
        return [_taken_away(each) for each in live]


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


def _known(keys: list[str]) -> dict[str, _Known]:
    found = dict(RawEvent.objects.filter(idempotency_key__in=keys).values_list("idempotency_key", "position"))
    ids = list(found.values())
    memories = Memory.objects.in_bulk(ids)
    edits = MemoryVersion.objects.filter(memory_id__in=ids).exclude(actor=ACTOR)
    edited = set(edits.values_list("memory_id", flat=True))
    removed = _removed(ids)
    return {key: _Known(each, memories.get(each), each in edited, each in removed) for key, each in found.items()}


def _removed(ids: list[int]) -> set[int]:
    """Return those whose last deletion was by this module."""
    streams = {f"memory:{each}": each for each in ids}
    deletions = RawEvent.objects.filter(stream_id__in=list(streams), event_type=MEMORY_DELETED.name)
    last = dict(deletions.order_by("position").values_list("stream_id", "actor"))
    return {streams[stream] for stream, actor in last.items() if actor == ACTOR}


def _added(wanted: Mapping[str, MemoryWrite]) -> list[Outcome]:
    commands = list(wanted.values())
    return [_outcome_of(result) for result in write_memories(commands=commands)]


def _outcome_of(result: WriteResult) -> Outcome:
    return Outcome(result.title, Done.ADDED if result.status is WriteStatus.CREATED else Done.TAKEN, result.id)


def _brought_up(known: _Known, wanted: MemoryWrite) -> Outcome:
    name = known.memory.title if known.memory else wanted.title
    return Outcome(name, _bring_up(known, wanted), known.id)


def _bring_up(known: _Known, wanted: MemoryWrite) -> Done:
    if known.memory is None or (known.memory.deleted_at and not known.removed):
        return Done.DELETED
    if known.memory.deleted_at:
        return _restored(known.memory, wanted)
    if known.edited:
        return Done.EDITED
    return Done.RENEWED if _renewed(known.memory, wanted) else Done.UNCHANGED


def _restored(memory: Memory, wanted: MemoryWrite) -> Done:
    try:
        restore_memory(command=MemoryRestore(id=memory.id, scope=MemoryScope.GLOBAL))
    except Conflict:
        return Done.TAKEN
    _renewed(memory, wanted)
    return Done.RESTORED


def _renewed(memory: Memory, wanted: MemoryWrite) -> bool:
    """Give the memory the text of this version, where it has another."""
    said = wanted.model_dump(include={"title", "content", "type", "tags", "attributes"})
    current = Existing.of(memory)
    if not current.differs(MemoryState(**{**current.state.columns(), **said})):
        return False
    update_memory(
        command=MemoryUpdate(id=memory.id, scope=MemoryScope.GLOBAL, change_reason="said better since", **said)
    )
    return True


def _taken_away(known: _Known) -> Outcome:
    name = known.memory.title if known.memory else ""
    if known.edited:
        return Outcome(name, Done.EDITED, known.id)
    delete_memory(command=MemoryTouch(id=known.id, scope=MemoryScope.GLOBAL, reason="bootstrap --remove"))
    return Outcome(name, Done.REMOVED, known.id)
