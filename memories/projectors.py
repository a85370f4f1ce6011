"""Write memories, versions, tags, relations, conflicts and packs, and apply quarantine to them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

from memories.events import (
    ACCEPTED,
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
from memories.models import ACYCLIC, Conflict, ContextPack, EndType, Memory, MemoryTag, MemoryVersion, Relation, Tag
from memories.selectors.relations import path_between, same_relation
from memoryhub.config.retention_rules import EndedWith
from memoryhub.core import clock, log
from memoryhub.core.entities import find_entities
from memoryhub.core.events.projection import Event, projects
from memoryhub.core.log import PAYLOAD_ERASED, PayloadErased
from memoryhub.core.log.quarantine import (
    QUARANTINE_LIFTED,
    QUARANTINE_PLACED,
    QuarantineLifted,
    QuarantinePlaced,
    outside_quarantine,
    quarantined_among,
)
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS, json_text
from sessions_app.events import SESSION_ENDED, SessionEnded
from sessions_app.models import SessionMode


def review_columns(status: ReviewStatus | None) -> dict[str, Any]:
    status = status or ACCEPTED
    return {"review": status.state, "review_reason": status.reason, "accepted_version": status.accepted_version}


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
    is_scratch = False
    if event.session_id:
        modes = rows.fetch("SELECT mode FROM sessions_app_session WHERE session_id = %s", [event.session_id])
        is_scratch = bool(modes) and modes[0][0] == SessionMode.SCRATCH
    created = created_at(event)
    rows.insert(
        Memory,
        id=event.position,
        version=1,
        seen_count=1,
        ephemeral=is_scratch,
        session_id=event.session_id,
        created_at=created,
        updated_at=_revised_at(event) or created,
        deleted_at=None,
        **review_columns(event.payload.review),
        **_state_columns(event.payload),
    )
    _add_version(event, event.position, version=1, base_version=None, reason="", conflicts_with=None)
    for tag in sorted(set(event.payload.tags)):
        rows.insert(MemoryTag, tag=tag, memory_id=event.position)


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
    for tag in sorted(set(payload.tags)):
        rows.insert(MemoryTag, tag=tag, memory_id=payload.memory_id)
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


# At the end of a scratch session, its memories are kept for good or soft-deleted
@projects(SESSION_ENDED)
def promote_or_discard(event: Event[SessionEnded]) -> None:
    payload = event.payload
    if payload.entries is None:
        return
    scratch = "session_id = %s AND ephemeral"
    if payload.entries is EndedWith.DISCARD:
        kept_ids = ", ".join(map(str, payload.kept)) or "0"
        rows.execute(
            f"UPDATE memories_memory SET deleted_at = %s WHERE {scratch} AND deleted_at IS NULL "
            f"AND id NOT IN ({kept_ids})",
            [rows.time_value(event.occurred_at), payload.session_id],
        )
    rows.execute(f"UPDATE memories_memory SET ephemeral = %s WHERE {scratch}", [False, payload.session_id])


def _state_columns(state: MemoryState) -> dict[str, Any]:
    columns = attribute_columns(state.kind, state.attributes)
    return {**state.columns(), **columns, "content_hash": content_hash(state.content)}


def _add_version(event: Event[Any], memory_id: int, **columns: Any) -> None:
    rows.insert(
        MemoryVersion,
        id=event.position,
        memory_id=memory_id,
        actor=event.actor,
        source=event.source,
        session_id=event.session_id,
        copied_from=event.payload.copied_from,
        created_at=event.occurred_at,
        **columns,
    )


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
    columns = event.payload.model_dump(
        exclude={"packed_at", "zone", "absent", "progress_of", "work", "remarks", "rechecks"}
    )
    rows.insert(ContextPack, id=event.position, created_at=clock.from_text(event.payload.packed_at), **columns)


# A memory in quarantine gives up its topic key and gets it back when released, unless another memory has it by then.
# Relations and tag descriptions have no text to keep: their rows are deleted and replayed from the log (decision 27).

# The topic keys of current versions, from their events
_TOPICS = (
    f"SELECT id, topic FROM (SELECT m.id, {json_text('e.payload_json', 'topic_key')} AS topic FROM memories_memory m "
    "JOIN memories_memoryversion v ON v.memory_id = m.id AND v.version = m.version "
    f"JOIN raw_events e ON e.position = v.id WHERE m.topic_key IS NULL AND m.id IN {IDS}) AS t "
    "WHERE topic IS NOT NULL ORDER BY id"
)
# A memory stays without its topic key where another one has taken it, in the same session if it is a session's
_TAKE_TOPIC = (
    "UPDATE memories_memory SET topic_key = %s WHERE id = %s AND (deleted_at IS NOT NULL OR NOT EXISTS ("
    "SELECT 1 FROM memories_memory o WHERE o.topic_key = %s AND o.deleted_at IS NULL "
    "AND (o.scope = 'session') = (memories_memory.scope = 'session') "
    "AND (o.scope <> 'session' OR o.session_id = memories_memory.session_id)))"
)


@projects(QUARANTINE_PLACED)
def give_up_names(event: Event[QuarantinePlaced]) -> None:
    ids = json.dumps(event.payload.ids)
    rows.execute(f"UPDATE memories_memory SET topic_key = NULL WHERE id IN {IDS}", [ids])
    for table in ("relation", "tag"):
        rows.execute(f"DELETE FROM memories_{table} WHERE id IN {IDS}", [ids])


@projects(QUARANTINE_LIFTED)
def take_names_back(event: Event[QuarantineLifted]) -> None:
    for memory_id, topic in rows.fetch(_TOPICS, [json.dumps(event.payload.ids)]):
        rows.execute(_TAKE_TOPIC, [topic, memory_id, topic])
    dropped = log.events().at(event.payload.ids).readable()
    tags = [log.event_of(stored) for stored in dropped.of_type(TAG_CREATED)]
    if tags:
        described = set(Tag.objects.values_list("name", flat=True))
        for tag in tags:
            if tag.payload.name not in described:
                describe_tag(tag)
    relations = [log.event_of(stored) for stored in dropped.of_type(RELATION_CREATED)]
    if event.version == 1:
        _relate_as_version_1(relations)
    else:
        _relate_again(relations, event.position)


# Lifted events of version 1 were projected without these checks: a rebuild must come out the same
def _relate_as_version_1(events: Sequence[Event[RelationCreated]]) -> None:
    same = Relation.objects.filter(source_id__in=[event.payload.source_id for event in events])
    related = set(same.values_list("relation", "source_id", "target_id"))
    for event in events:
        payload = event.payload
        if (payload.relation, payload.source_id, payload.target_id) not in related:
            relate(event)


# Newest first; skips relations that were deleted, exist again, lost an end, or would now close a cycle
def _relate_again(events: Sequence[Event[RelationCreated]], before: int) -> None:
    deletions = log.events().of_stream(*(event.stream_id for event in events)).of_type(RELATION_DELETED)
    removed = set(deletions.window(up_to=before - 1).values_list("stream_id", flat=True))
    ends = set(find_entities(end for event in events for end in (event.payload.source_id, event.payload.target_id)))
    for event in reversed(events):
        relation = event.payload.relation
        source = event.payload.source_id
        target = event.payload.target_id
        if event.stream_id in removed or not {source, target} <= ends or same_relation(relation, source, target):
            continue
        if relation not in ACYCLIC or not path_between(relation, target, source):
            relate(event)


# A conflict disappears while the version that opened it is in quarantine, and is open again while its resolution is
@projects(QUARANTINE_PLACED, QUARANTINE_LIFTED)
def update_conflicts(event: Event[QuarantinePlaced | QuarantineLifted]) -> None:
    disputes = log.events().at(event.payload.ids).of_type(MEMORY_REVISED, CONFLICT_RESOLVED).payloads()
    disputed = {payload.get("conflict_id", position) for position, payload in disputes.items()}
    aside = quarantined_among(sorted(disputed))
    for opened in log.events().at(disputed).readable():
        rows.execute("DELETE FROM memories_conflict WHERE id = %s", [opened.position])
        if opened.position not in aside:
            _open_again(log.event_of(opened), event.position)


def _open_again(opened: Event[MemoryRevised], before: int) -> None:
    if opened.payload.conflicts_with is None or not Memory.objects.filter(id=opened.payload.memory_id).exists():
        return
    open_conflict(opened, opened.payload.conflicts_with)
    resolutions = (
        log.events().of_stream(opened.stream_id).of_type(CONFLICT_RESOLVED).window(up_to=before - 1).readable()
    )
    for stored in outside_quarantine(resolutions, "position").reverse():
        resolution = log.event_of(stored)
        if resolution.payload.conflict_id == opened.position:
            resolve(resolution)
            return


_ROWS_OF_MEMORY = (
    "DELETE FROM memories_memorytag WHERE memory_id = %s",
    "DELETE FROM memories_memoryversion WHERE memory_id = %s",
    "DELETE FROM memories_conflict WHERE memory_id = %s",
    "DELETE FROM memories_memory WHERE id = %s",
)
_ROWS_OF_END = (
    "DELETE FROM memories_relation WHERE source_type = %s AND source_id = %s",
    "DELETE FROM memories_relation WHERE target_type = %s AND target_id = %s",
)


@projects(PAYLOAD_ERASED)
def remove_erased(event: Event[PayloadErased]) -> None:
    for stream in event.payload.streams:
        kind, _, memory_id = stream.partition(":")
        if kind != EndType.MEMORY:
            continue
        for sql in _ROWS_OF_MEMORY:
            rows.execute(sql, [memory_id])
        for sql in _ROWS_OF_END:
            rows.execute(sql, [EndType.MEMORY, memory_id])
