"""Lists of memories, last changed first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db.models import Count

from memories import scopes
from memories.models import Memory, MemoryQuerySet, MemoryScope
from memories.present import memory_line
from memories.schemas import MemoryList
from memories.search.snippets import snippet
from memories.selectors.memories import views
from memoryhub.core.origin import current_origin
from memoryhub.core.paging import decode_cursor, encode_cursor, page
from memoryhub.core.quarantine import outside_quarantine
from memoryhub.core.retrieval import retrieval
from memoryhub.core.schemas import Listing


def list_memories(*, command: MemoryList) -> Listing:
    """Return a page of memories, last changed first; the cursor neither skips nor repeats while others write."""
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
    """Return the memories of the current store that hold here and match the filters."""
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
    """Return memories for a list: their texts cut to snippets, or their ids and titles alone."""
    if compact:
        return [{"id": memory.id, "title": memory.title} for memory in memories]
    return [{**each, "content": snippet(each["content"], [])} for each in views(memories)]


def count_by_type() -> dict[str, int]:
    """Return the number of live memories of each type."""
    return dict(Memory.objects.live().values_list("type").annotate(Count("id")).order_by("type"))
