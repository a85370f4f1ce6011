from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from django.db.models import Count

from memories import scopes
from memories.kinds import number_defaults
from memories.models import Memory, MemoryQuerySet, MemoryScope
from memories.present import memory_line
from memories.schemas import MemoryGet, MemoryList, MemoryView
from memories.search.snippets import snippet
from memories.selectors.conflicts import open_conflicts
from memories.selectors.relations import relations_of, superseded_by
from memories.selectors.versions import versions_of
from memories.uses.events import Use
from memories.uses.notes import note_read
from memories.uses.selectors import uses_of
from memoryhub.core import clock
from memoryhub.core.entities import not_found
from memoryhub.core.errors import Gone, Invalid, NotFound
from memoryhub.core.log.quarantine import outside_quarantine, quarantine_marks
from memoryhub.core.origin import current_origin
from memoryhub.core.paging import decode_cursor, encode_cursor, page
from memoryhub.core.schemas import Listing
from memoryhub.core.search.retrieval import retrieval
from memoryhub.core.stores.store import use_store

_DERIVED = {"memory_type", "attributes", "related_chunks", "expired", "conflicts", "superseded_by", "quarantine"}
_STORED = [name for name in MemoryView.model_fields if name not in _DERIVED]
# Parts of a memory that callers can ask for
_PARTS: dict[str, Callable[[list[int]], dict[int, Any]]] = {
    "versions": versions_of,
    "relations": relations_of,
    "use": uses_of,
}


def find_memory(memory_id: int) -> Memory:
    """Return the memory, deleted or not.

    Raises:
        NotFound: there is no such memory.
        Gone: it was permanently erased.
    """
    memory: Memory | None = Memory.objects.filter(id=memory_id).first()
    if memory is None:
        raise not_found("memory", [memory_id], id=memory_id)
    return memory


def views(memories: Sequence[Memory]) -> list[dict[str, Any]]:
    """Return memories of the current store as JSON data."""
    ids = [memory.id for memory in memories]
    conflicts, successors, aside = open_conflicts(ids), superseded_by(ids), quarantine_marks(ids)
    now = clock.now()
    return [
        MemoryView(
            **{name: getattr(memory, name) for name in _STORED},
            memory_type=memory.type,
            attributes={**number_defaults(memory.kind), **memory.attributes},
            related_chunks=memory.attributes.get("related_chunks", []),
            expired=memory.valid_until is not None and memory.valid_until <= now,
            conflicts=conflicts.get(memory.id, []),
            superseded_by=successors.get(memory.id, []),
            quarantine=aside.get(memory.id, ""),
        ).model_dump(mode="json")
        for memory in memories
    ]


def get_memories(*, command: MemoryGet) -> list[dict[str, Any]]:
    """Return memories by id, in the given order, or the nearest one with a title or topic.

    Raises:
        NotFound: one of them does not exist; the message has its id.
        Gone: one of them was permanently erased, or is deleted, and ``include_deleted`` is off.
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
        raise Gone(f"memory {listed} is deleted; restore it, or pass include_deleted to read it", ids=gone)
    shown = views(found)
    ids = [memory.id for memory in found]
    for name, read in _PARTS.items():
        if getattr(command, name):
            parts = read(ids)
            shown = [{**memory, name: parts[memory["id"]]} for memory in shown]
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
        raise Invalid("give either ids or name")
    for level in scopes.levels(command.scope, inherit=command.inherit):
        with use_store(level.store):
            memory = _named(command.name, level, command)
            if memory:
                return _whole([memory], command)
    raise NotFound(f"there is no memory titled {command.name[:200]!r} here; search for its words instead")


# Memories of the session win over those of the project, then the last changed one
def _named(name: str, level: scopes.Level, command: MemoryGet) -> Memory | None:
    candidates = Memory.objects.filter(title=name) | Memory.objects.filter(topic_key=name)
    if level.scopes == (MemoryScope.SESSION,):
        candidates = candidates.filter(scope=MemoryScope.SESSION)
    candidates = candidates.of_session(level.session_id)
    if command.kind:
        candidates = candidates.filter(kind=command.kind)
    candidates = outside_quarantine(candidates) if command.include_deleted else candidates.live()
    found: list[Memory] = list(candidates.order_by("-updated_at", "-id"))
    return min(found, key=lambda memory: memory.scope != MemoryScope.SESSION, default=None)


def list_memories(*, command: MemoryList) -> Listing:
    """Return a page of memories, last changed first; the cursor neither skips nor repeats."""
    with retrieval("list", command), scopes.reading(command.scope or MemoryScope.PROJECT):
        matching = filtered(command)
        found = list(_after(matching, command.cursor).order_by("-updated_at", "-id")[: command.limit + 1])
        places = {memory.id: _cursor_of(memory) for memory in found}
        return page(
            listed(found[: command.limit], compact=command.compact),
            total=matching.count(),
            more=len(found) > command.limit,
            cursor_of=lambda item: places[item["id"]],
            line=memory_line,
            max_tokens=command.max_tokens,
        )


def filtered(command: MemoryList) -> MemoryQuerySet:
    """Return the memories of the current store that are visible and match the filters."""
    wanted = {
        "kind": command.kind,
        "type": command.type,
        "scope": command.scope if command.scope is MemoryScope.SESSION else None,
        "session_id": command.session_id,
        "created_at__gte": command.since,
        "created_at__lt": command.until,
    }
    found: MemoryQuerySet = Memory.objects.filter(**{key: value for key, value in wanted.items() if value})
    found = outside_quarantine(found) if command.include_deleted else found.live()
    return found.of_session(command.session_id or current_origin().session_id).tagged(*command.tags)


def _after(matching: MemoryQuerySet, cursor: str | None) -> MemoryQuerySet:
    parts = decode_cursor(cursor, (str, int))
    if parts is None:
        return matching
    moment, memory_id = parts
    return matching.filter(updated_at__lt=moment) | matching.filter(updated_at=moment, id__lt=memory_id)


def _cursor_of(memory: Memory) -> str:
    return encode_cursor(memory.updated_at.isoformat(), memory.id)


def listed(memories: Sequence[Memory], *, compact: bool) -> list[dict[str, Any]]:
    """Return memories for a list, with snippets instead of texts; ``compact`` has only ids and titles."""
    if compact:
        return [{"id": memory.id, "title": memory.title} for memory in memories]
    return [{**memory, "content": snippet(memory["content"], [])} for memory in views(memories)]


def count_by_type() -> dict[str, int]:
    """Return the number of live memories by type."""
    return dict(Memory.objects.live().values_list("type").annotate(Count("id")).order_by("type"))
