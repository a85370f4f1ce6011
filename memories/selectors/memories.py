"""Memories as every door shows them, by id or by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from memories import scopes
from memories.models import Memory, MemoryScope
from memories.schemas import MemoryGet, MemoryView
from memories.selectors.conflicts import open_conflicts
from memories.selectors.relations import relations_of, superseded_by
from memories.selectors.versions import versions_of
from memories.uses.kinds import Use
from memories.uses.notes import note_read
from memories.uses.selectors import uses_of
from memoryhub.core import clock
from memoryhub.core.entities import not_found
from memoryhub.core.errors import Gone, Invalid, NotFound
from memoryhub.core.quarantine import outside_quarantine, quarantine_marks
from memoryhub.core.retrieval import retrieval
from memoryhub.core.stores import use_store

_STORED = [
    name for name in MemoryView.model_fields if name not in ("expired", "conflicts", "superseded_by", "quarantine")
]
_PARTS: dict[str, Callable[[list[int]], dict[int, Any]]] = {
    "versions": versions_of,
    "relations": relations_of,
    "use": uses_of,
}
"""What is told of memories where it is asked for, and where it comes from."""


def find_memory(memory_id: int) -> Memory:
    """Return the memory, deleted or not.

    Raises:
        NotFound: there is none of that id.
    """
    memory: Memory | None = Memory.objects.filter(id=memory_id).first()
    if memory is None:
        raise not_found("memory", [memory_id], id=memory_id)
    return memory


def views(memories: Sequence[Memory]) -> list[dict[str, Any]]:
    """Return memories of the current store as JSON data, the same at every door."""
    ids = [memory.id for memory in memories]
    conflicts, successors, aside = open_conflicts(ids), superseded_by(ids), quarantine_marks(ids)
    now = clock.now()
    return [
        MemoryView(
            **{name: getattr(memory, name) for name in _STORED},
            expired=memory.valid_until is not None and memory.valid_until <= now,
            conflicts=conflicts.get(memory.id, []),
            superseded_by=successors.get(memory.id, []),
            quarantine=aside.get(memory.id, ""),
        ).model_dump(mode="json")
        for memory in memories
    ]


def get_memories(*, command: MemoryGet) -> list[dict[str, Any]]:
    """Return memories by id, in the order asked for, or the nearest one of a title or topic.

    Raises:
        NotFound: one of them does not exist; the message names which.
        Gone: one of them is deleted, and ``include_deleted`` is off.
    """
    with retrieval("get", command):
        if command.ids:
            with scopes.reading(command.scope or MemoryScope.PROJECT):
                return _whole(_by_ids(command.ids), command)
        return _by_name(command)


def _whole(found: list[Memory], command: MemoryGet) -> list[dict[str, Any]]:
    gone = [memory.id for memory in found if memory.deleted_at]
    if gone and not command.include_deleted:
        listed = ", ".join(f"#{memory_id}" for memory_id in gone)
        raise Gone(f"memory {listed} is deleted; restore brings it back, include_deleted shows it", ids=gone)
    shown = views(found)
    ids = [memory.id for memory in found]
    for name, read in _PARTS.items():
        if getattr(command, name):
            parts = read(ids)
            shown = [{**each, name: parts[each["id"]]} for each in shown]
    note_read(Use.FETCHED, ids)
    return shown


def _by_ids(ids: list[int]) -> list[Memory]:
    found = {memory.id: memory for memory in Memory.objects.filter(id__in=ids)}
    missing = [memory_id for memory_id in ids if memory_id not in found]
    if missing:
        raise not_found("memory", missing)
    return [found[memory_id] for memory_id in ids]


def _by_name(command: MemoryGet) -> list[dict[str, Any]]:
    if not command.name:
        raise Invalid("give ids or name, one of the two")
    for level in scopes.levels(command.scope, inherit=command.inherit):
        with use_store(level.store):
            memory = _named(command.name, level, command)
            if memory:
                return _whole([memory], command)
    raise NotFound(f"there is no memory titled {command.name[:200]!r} here; search for its words instead")


def _named(name: str, level: scopes.Level, command: MemoryGet) -> Memory | None:
    """Return the memory of that title or topic, the session's before the project's, then the one last changed."""
    candidates = Memory.objects.filter(title=name) | Memory.objects.filter(topic_key=name)
    if level.scopes == (MemoryScope.SESSION,):
        candidates = candidates.filter(scope=MemoryScope.SESSION)
    candidates = candidates.of_session(level.session_id)
    if command.kind:
        candidates = candidates.filter(kind=command.kind)
    candidates = outside_quarantine(candidates) if command.include_deleted else candidates.live()
    found: list[Memory] = list(candidates.order_by("-updated_at", "-id"))
    return min(found, key=lambda memory: memory.scope != MemoryScope.SESSION, default=None)
