"""What can be asked of memories; nothing here changes anything."""

from __future__ import annotations

import json
from typing import Any

from memories.models import Memory, MemoryQuerySet, MemoryVersion
from memories.present import hit_line, memory_line
from memories.schemas import MemoryGet, MemoryList, MemorySearch, MemoryView, VersionView
from memories.search import engine
from memories.search.snippets import snippet
from memories.search.text import terms
from memoryhub.core import rows
from memoryhub.core.errors import Gone, Invalid, NotFound
from memoryhub.core.models import RawEvent
from memoryhub.core.paging import decode_cursor, encode_cursor, page
from memoryhub.core.retrieval import retrieval
from memoryhub.core.schemas import Listing


def view(memory: Memory) -> dict[str, Any]:
    """Return a memory as JSON data, the same at every door."""
    fields = {name: getattr(memory, name) for name in MemoryView.model_fields}
    return MemoryView(**fields).model_dump(mode="json")


@retrieval("get")
def get_memories(*, command: MemoryGet) -> list[dict[str, Any]]:
    """Return memories by id, in the order asked for, or the one of a title or topic.

    Raises:
        NotFound: one of them does not exist; the message names which.
        Gone: one of them is deleted, and ``include_deleted`` is off.
    """
    found = _by_ids(command.ids) if command.ids else _by_name(command.name, deleted=command.include_deleted)
    gone = [memory.id for memory in found if memory.deleted_at]
    if gone and not command.include_deleted:
        listed = ", ".join(f"#{memory_id}" for memory_id in gone)
        raise Gone(f"memory {listed} is deleted; memory_restore brings it back, include_deleted shows it", ids=gone)
    views = [view(memory) for memory in found]
    if command.versions:
        histories = versions_of([memory.id for memory in found])
        views = [{**each, "versions": histories[each["id"]]} for each in views]
    return views


def _by_ids(ids: list[int]) -> list[Memory]:
    found = {memory.id: memory for memory in Memory.objects.filter(id__in=ids)}
    missing = [memory_id for memory_id in ids if memory_id not in found]
    if missing:
        listed = ", ".join(f"#{memory_id}" for memory_id in missing)
        raise NotFound(f"there is no memory {listed} here; search or list to find its id", ids=missing)
    return [found[memory_id] for memory_id in ids]


def _by_name(name: str | None, *, deleted: bool) -> list[Memory]:
    if not name:
        raise Invalid("give ids or name, one of the two")
    named = Memory.objects.filter(title=name) | Memory.objects.filter(topic_key=name)
    memory = (named if deleted else named.live()).order_by("-updated_at", "-id").first()
    if memory is None:
        raise NotFound(f"there is no memory titled {name!r} here; search for its words instead")
    return [memory]


def versions_of(memory_ids: list[int]) -> dict[int, list[dict[str, Any]]]:
    """Return the history of each memory, newest first. A version's text is the payload of its event."""
    versions = list(MemoryVersion.objects.filter(memory_id__in=memory_ids).order_by("-version"))
    payloads = dict(
        RawEvent.objects.filter(position__in=[version.id for version in versions]).values_list(
            "position", "payload_json"
        )
    )
    histories: dict[int, list[dict[str, Any]]] = {memory_id: [] for memory_id in memory_ids}
    for version in versions:
        histories[version.memory_id].append(_version_view(version, json.loads(payloads[version.id] or "{}")))
    return histories


def _version_view(version: MemoryVersion, payload: dict[str, Any]) -> dict[str, Any]:
    return VersionView(
        event=version.id,
        version=version.version,
        base_version=version.base_version,
        title=payload.get("title"),
        content=payload.get("content"),
        tags=payload.get("tags", []),
        reason=version.reason,
        actor=version.actor,
        source=version.source,
        session_id=version.session_id,
        created_at=version.created_at,
    ).model_dump(mode="json")


@retrieval("list")
def list_memories(*, command: MemoryList) -> Listing:
    """Return a page of memories, last changed first; the cursor neither skips nor repeats while others write."""
    matching = filtered(command)
    found = list(_after(matching, command.cursor).order_by("-updated_at", "-id")[: command.limit + 1])
    return page(
        [listed(memory, compact=command.compact) for memory in found[: command.limit]],
        total=matching.count(),
        more=len(found) > command.limit,
        cursor_of=lambda item: _cursor_of(next(memory for memory in found if memory.id == item["id"])),
        line=memory_line,
        max_tokens=command.max_tokens,
    )


def filtered(command: MemoryList) -> MemoryQuerySet:
    """Return the memories that match the filters."""
    wanted = {
        "type": command.type,
        "session_id": command.session_id,
        "created_at__gte": command.since,
        "created_at__lt": command.until,
    }
    found: MemoryQuerySet = Memory.objects.filter(**{key: value for key, value in wanted.items() if value})
    if not command.include_deleted:
        found = found.live()
    return found.tagged(*command.tags)


def _after(matching: MemoryQuerySet, cursor: str | None) -> MemoryQuerySet:
    parts = decode_cursor(cursor, (str, int))
    if parts is None:
        return matching
    moment, memory_id = parts
    return matching.filter(updated_at__lt=moment) | matching.filter(updated_at=moment, id__lt=memory_id)


def _cursor_of(memory: Memory) -> str:
    return encode_cursor(memory.updated_at.isoformat(), memory.id)


def listed(memory: Memory, *, compact: bool) -> dict[str, Any]:
    """Return a memory for a list: its text cut to a snippet, or its id and title alone."""
    if compact:
        return {"id": memory.id, "title": memory.title}
    full = view(memory)
    full["content"] = snippet(full["content"], [])
    return full


@retrieval("search")
def search(*, command: MemorySearch, mode: str = "auto") -> Listing:
    """Return what answers the question best, each hit with its evidence: id, source, date, session."""
    parts = decode_cursor(command.cursor, (int,))
    start = parts[0] if parts else 0
    ranked = engine.rank(command, mode)
    shown = ranked.hits[start : start + command.limit]
    places = {document_id: start + index for index, (document_id, _) in enumerate(shown, 1)}
    return page(
        hits(shown, command),
        total=len(ranked.hits),
        more=start + command.limit < len(ranked.hits),
        cursor_of=lambda hit: encode_cursor(places[hit["id"]]),
        line=hit_line,
        max_tokens=command.max_tokens,
        mode=ranked.mode,
    )


def hits(shown: list[tuple[int, float]], command: MemorySearch) -> list[dict[str, Any]]:
    """Return ranked ids as hits, each with its evidence."""
    ids = [document_id for document_id, _ in shown]
    documents = engine.documents_of(ids)
    if command.compact:
        return [{"id": each, "title": documents[each]["title"]} for each in ids]
    texts, words = engine.texts_of(ids), terms(command.query)
    return [
        {
            **documents[document_id],
            "snippet": snippet(texts.get(document_id, ""), words),
            "score": round(score, 6),
            "event": document_id,
        }
        for document_id, score in shown
    ]


def count_by_type() -> dict[str, int]:
    """Return the number of live memories of each type."""
    found = rows.fetch(
        "SELECT type, count(*) FROM memories_memory WHERE deleted_at IS NULL GROUP BY type ORDER BY type"
    )
    return dict(found)
