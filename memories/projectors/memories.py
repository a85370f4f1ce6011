from __future__ import annotations

import hashlib
from datetime import datetime
from functools import lru_cache
from typing import Any

from memories.events import (
    CONFLICT_RESOLVED,
    CONTEXT_PACKED,
    MEMORY_DELETED,
    MEMORY_RESTORED,
    MEMORY_REVIEWED,
    MEMORY_REVISED,
    MEMORY_SEEN,
    MEMORY_WRITTEN,
    RELATION_CREATED,
    RELATION_DELETED,
    TAG_CREATED,
    ConflictResolved,
    ContextPacked,
    MemoryReviewed,
    MemoryRevised,
    MemoryState,
    MemoryTouched,
    MemoryWritten,
    RelationCreated,
    RelationDeleted,
    ReviewStatus,
    TagCreated,
)
from memories.kinds import attribute_columns
from memories.models import Conflict, ContextPack, Memory, MemoryTag, MemoryVersion, Relation, Tag
from memoryhub.config.retention_rules import EndedWith
from memoryhub.core import clock
from memoryhub.core.events.projection import Event, projects
from memoryhub.core.stores import rows
from sessions_app.events import SESSION_ENDED, SessionEnded
from sessions_app.models import SessionMode

# The status of every memory where the project asks for no review
ACCEPTED = ReviewStatus()


def review_columns(status: ReviewStatus | None) -> dict[str, Any]:
    status = status or ACCEPTED
    return {
        "review": status.state,
        "review_reason": status.reason,
        "accepted_version": status.accepted_version,
    }


@projects(MEMORY_REVIEWED)
def give_verdict(event: Event[MemoryReviewed]) -> None:
    rows.update(Memory, event.payload.memory_id, **review_columns(event.payload.after))


# Cached: one write needs it several times
@lru_cache(maxsize=1024)
def content_hash(content: str) -> str:
    """Return the digest by which two texts count as identical; whitespace is ignored (decision 8)."""
    return hashlib.sha256(" ".join(content.split()).encode()).hexdigest()


def created_at(event: Event[MemoryWritten]) -> datetime:
    return clock.from_text(event.payload.written_at) if event.payload.written_at else event.occurred_at


# Packs and lists order by it, so that an old note is not the newest because it was imported last
def _revised_at(event: Event[MemoryWritten] | Event[MemoryRevised]) -> datetime | None:
    return clock.from_text(event.payload.revised_at) if event.payload.revised_at else None


@projects(MEMORY_WRITTEN)
def write(event: Event[MemoryWritten]) -> None:
    rows.insert(
        Memory,
        id=event.position,
        version=1,
        seen_count=1,
        ephemeral=_in_scratch_session(event.session_id),
        session_id=event.session_id,
        created_at=created_at(event),
        updated_at=_revised_at(event) or created_at(event),
        deleted_at=None,
        **review_columns(event.payload.review),
        **_state_columns(event.payload),
    )
    _add_version(event, event.position, version=1, base_version=None, reason="", conflicts_with=None)
    _tag(event.position, event.payload.tags)


@projects(MEMORY_REVISED)
def revise(event: Event[MemoryRevised]) -> None:
    payload = event.payload
    rows.update(
        Memory,
        payload.memory_id,
        version=payload.version,
        updated_at=_revised_at(event) or event.occurred_at,
        **review_columns(payload.review),
        **_state_columns(payload),
    )
    _add_version(
        event,
        payload.memory_id,
        version=payload.version,
        base_version=payload.base_version,
        reason=payload.reason,
        conflicts_with=payload.conflicts_with,
    )
    rows.execute("DELETE FROM memories_memorytag WHERE memory_id = %s", [payload.memory_id])
    _tag(payload.memory_id, payload.tags)
    if payload.conflicts_with is not None:
        open_conflict(event, payload.conflicts_with)


def open_conflict(event: Event[MemoryRevised], other: int) -> None:
    rows.insert(
        Conflict,
        id=event.position,
        memory_id=event.payload.memory_id,
        version_a=other,
        version_b=event.payload.version,
        detected_at=event.occurred_at,
    )


@projects(CONFLICT_RESOLVED)
def resolve(event: Event[ConflictResolved]) -> None:
    payload = event.payload
    rows.update(
        Conflict,
        payload.conflict_id,
        resolution=payload.resolution,
        reason=payload.reason,
        resolved_by=payload.resolved_by or event.actor,
        resolved_at=event.occurred_at,
        resolved_version=payload.version,
        split_id=payload.split_id,
    )


def _in_scratch_session(session_id: str) -> bool:
    if not session_id:
        return False
    mode = rows.fetch("SELECT mode FROM sessions_app_session WHERE session_id = %s", [session_id])
    return bool(mode) and mode[0][0] == SessionMode.SCRATCH


# At the end of a scratch session, its memories are kept for good or soft-deleted
@projects(SESSION_ENDED)
def promote_or_discard(event: Event[SessionEnded]) -> None:
    payload = event.payload
    if payload.entries is None:
        return
    scratch = "session_id = %s AND ephemeral"
    if payload.entries is EndedWith.DISCARD:
        kept = ", ".join(str(int(memory_id)) for memory_id in payload.kept) or "0"
        rows.execute(
            f"UPDATE memories_memory SET deleted_at = %s WHERE {scratch} AND deleted_at IS NULL AND id NOT IN ({kept})",
            [rows.time_value(event.occurred_at), payload.session_id],
        )
    rows.execute(f"UPDATE memories_memory SET ephemeral = %s WHERE {scratch}", [False, payload.session_id])


def _state_columns(state: MemoryState) -> dict[str, Any]:
    columns = {**state.columns(), **attribute_columns(state.kind, state.attributes)}
    return {**columns, "content_hash": content_hash(state.content)}


def _add_version(event: Event[Any], memory_id: int, **columns: Any) -> None:
    rows.insert(
        MemoryVersion,
        id=event.position,
        memory_id=memory_id,
        actor=event.actor,
        source=event.source,
        session_id=event.session_id,
        created_at=event.occurred_at,
        **columns,
    )


def _tag(memory_id: int, tags: list[str]) -> None:
    for tag in sorted(set(tags)):
        rows.insert(MemoryTag, tag=tag, memory_id=memory_id)


@projects(MEMORY_SEEN)
def count_up(event: Event[MemoryTouched]) -> None:
    rows.execute("UPDATE memories_memory SET seen_count = seen_count + 1 WHERE id = %s", [event.payload.memory_id])


@projects(MEMORY_DELETED)
def delete(event: Event[MemoryTouched]) -> None:
    rows.update(Memory, event.payload.memory_id, deleted_at=event.occurred_at)


@projects(MEMORY_RESTORED)
def restore(event: Event[MemoryTouched]) -> None:
    rows.update(Memory, event.payload.memory_id, deleted_at=None)


# A new description replaces the old one
@projects(TAG_CREATED)
def describe_tag(event: Event[TagCreated]) -> None:
    rows.execute("DELETE FROM memories_tag WHERE name = %s", [event.payload.name])
    rows.insert(Tag, id=event.position, created_at=event.occurred_at, **event.payload.model_dump())


@projects(RELATION_CREATED)
def relate(event: Event[RelationCreated]) -> None:
    rows.insert(
        Relation,
        id=event.position,
        actor=event.payload.author or event.actor,
        session_id=event.session_id,
        created_at=event.occurred_at,
        **event.payload.model_dump(exclude={"author"}),
    )


@projects(RELATION_DELETED)
def unrelate(event: Event[RelationDeleted]) -> None:
    rows.execute("DELETE FROM memories_relation WHERE id = %s", [event.payload.relation_id])


@projects(CONTEXT_PACKED)
def keep_pack(event: Event[ContextPacked]) -> None:
    columns = event.payload.model_dump(exclude={"packed_at", "zone"})
    rows.insert(ContextPack, id=event.position, created_at=clock.from_text(event.payload.packed_at), **columns)
