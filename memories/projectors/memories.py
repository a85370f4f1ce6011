"""Memories, their versions and tags."""

from __future__ import annotations

import hashlib
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

ACCEPTED = ReviewStatus()
"""How every memory stands where nobody asks for more."""


def review_columns(standing: ReviewStatus | None) -> dict[str, Any]:
    """Return how a memory stands as its read model has it; None is accepted."""
    stands = standing or ACCEPTED
    return {
        "review": stands.state,
        "review_reason": stands.reason,
        "accepted_version": stands.accepted_version,
    }


@projects(MEMORY_REVIEWED)
def give_verdict(event: Event[MemoryReviewed]) -> None:
    """Let the memory stand as the verdict says."""
    rows.update(Memory, event.payload.memory_id, **review_columns(event.payload.after))


@lru_cache(maxsize=1024)
def content_hash(content: str) -> str:
    """Return the digest by which two texts count as identical: white space does not matter.

    A write asks for it several times: to look for the same text, and to keep it.
    """
    return hashlib.sha256(" ".join(content.split()).encode()).hexdigest()


@projects(MEMORY_WRITTEN)
def write(event: Event[MemoryWritten]) -> None:
    """Add the memory and its first version."""
    now = event.occurred_at
    rows.insert(
        Memory,
        id=event.position,
        version=1,
        seen_count=1,
        ephemeral=_in_scratch_session(event.session_id),
        session_id=event.session_id,
        created_at=now,
        updated_at=now,
        deleted_at=None,
        **review_columns(event.payload.review),
        **_state_columns(event.payload),
    )
    _add_version(event, event.position, version=1, base_version=None, reason="", conflicts_with=None)
    _tag(event.position, event.payload.tags)


@projects(MEMORY_REVISED)
def revise(event: Event[MemoryRevised]) -> None:
    """Replace the memory's state and add the version."""
    payload = event.payload
    rows.update(
        Memory,
        payload.memory_id,
        version=payload.version,
        updated_at=event.occurred_at,
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
    """Add the conflict between the new version and one that its writer had not seen."""
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
    """Note how the conflict was settled, by whom and why."""
    payload = event.payload
    rows.update(
        Conflict,
        payload.conflict_id,
        resolution=payload.resolution,
        reason=payload.reason,
        resolved_by=event.actor,
        resolved_at=event.occurred_at,
        resolved_version=payload.version,
        split_id=payload.split_id,
    )


def _in_scratch_session(session_id: str) -> bool:
    if not session_id:
        return False
    mode = rows.fetch("SELECT mode FROM sessions_app_session WHERE session_id = %s", [session_id])
    return bool(mode) and mode[0][0] == SessionMode.SCRATCH


@projects(SESSION_ENDED)
def promote_or_discard(event: Event[SessionEnded]) -> None:
    """Keep the entries of a scratch session, or delete those that are not to be kept."""
    payload = event.payload
    if payload.entries is None:
        return
    mine = "session_id = %s AND ephemeral"
    if payload.entries is EndedWith.DISCARD:
        kept = ", ".join(str(int(memory_id)) for memory_id in payload.kept) or "0"
        rows.execute(
            f"UPDATE memories_memory SET deleted_at = %s WHERE {mine} AND deleted_at IS NULL AND id NOT IN ({kept})",
            [rows.time_value(event.occurred_at), payload.session_id],
        )
    rows.execute(f"UPDATE memories_memory SET ephemeral = %s WHERE {mine}", [False, payload.session_id])


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
    """Count that the same text was written once more."""
    rows.execute("UPDATE memories_memory SET seen_count = seen_count + 1 WHERE id = %s", [event.payload.memory_id])


@projects(MEMORY_DELETED)
def delete(event: Event[MemoryTouched]) -> None:
    """Mark the memory deleted; it can be restored."""
    rows.update(Memory, event.payload.memory_id, deleted_at=event.occurred_at)


@projects(MEMORY_RESTORED)
def restore(event: Event[MemoryTouched]) -> None:
    """Take the mark away."""
    rows.update(Memory, event.payload.memory_id, deleted_at=None)


@projects(TAG_CREATED)
def describe_tag(event: Event[TagCreated]) -> None:
    """Add the tag's description, or replace it."""
    rows.execute("DELETE FROM memories_tag WHERE name = %s", [event.payload.name])
    rows.insert(Tag, id=event.position, created_at=event.occurred_at, **event.payload.model_dump())


@projects(RELATION_CREATED)
def relate(event: Event[RelationCreated]) -> None:
    """Add the relation."""
    rows.insert(
        Relation,
        id=event.position,
        actor=event.actor,
        session_id=event.session_id,
        created_at=event.occurred_at,
        **event.payload.model_dump(),
    )


@projects(RELATION_DELETED)
def unrelate(event: Event[RelationDeleted]) -> None:
    """Take the relation away."""
    rows.execute("DELETE FROM memories_relation WHERE id = %s", [event.payload.relation_id])


@projects(CONTEXT_PACKED)
def keep_pack(event: Event[ContextPacked]) -> None:
    """Note what was told, to whom, and from which state of the logs."""
    told = event.payload.model_dump(exclude={"packed_at"})
    rows.insert(ContextPack, id=event.position, created_at=clock.from_text(event.payload.packed_at), **told)
