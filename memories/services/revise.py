"""New versions of a memory, by updates, restored versions and resolved conflicts, and the results of writes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from memories import scopes
from memories.duplicates import Existing, ExistingMemories
from memories.embeddings.meaning import renewal
from memories.events import (
    ACCEPTED,
    CONFLICT_RESOLVED,
    ENTRY_ANCHORED,
    MEMORY_REVISED,
    MEMORY_WRITTEN,
    ConflictResolved,
    CopiedFrom,
    MemoryRevised,
    MemoryState,
    MemoryWritten,
    ProvenanceRecord,
    ReviewStatus,
    filled,
)
from memories.kinds import check_attributes, check_type
from memories.models import Conflict as VersionConflict
from memories.models import Memory, MemoryScope, MemoryVersion, Resolution
from memories.pack.sections import refuse_echo
from memories.review.policy import ReviewGate
from memories.schemas import (
    ConflictResolve,
    ConflictResult,
    Embedding,
    MemoryRestore,
    MemoryUpdate,
    WriteResult,
    WriteStatus,
)
from memories.schemas.validity import AnchorsChange
from memories.selectors.memories import find_memory
from memories.selectors.versions import find_conflict, provenance_at, state_at
from memories.services.amendments import find_amendments
from memories.validity.amendment_rules import TitledText
from memories.validity.anchoring import change_anchors
from memories.validity.copies import copied_from
from memories.validity.provenance import current_workplace, provenance_of_memory
from memoryhub.config.current_settings import project_settings
from memoryhub.config.project_settings import ProjectSettings
from memoryhub.core import clock, log
from memoryhub.core.contributions import scratch
from memoryhub.core.errors import ConflictError, Gone, Invalid, PreconditionFailed
from memoryhub.core.kinds import word_for
from memoryhub.core.log.quarantine import quarantine_marks
from memoryhub.core.stores import rows

_CHANGEABLE = {"title", "content", "type", "tags", "author", "source", "resource_links"}
_TEXT_WRITTEN = {WriteStatus.CREATED, WriteStatus.UPDATED, WriteStatus.RESTORED, WriteStatus.CONFLICT}


def update_memory(*, command: MemoryUpdate, window: timedelta | None = None) -> WriteResult:
    """Change parts of a memory; without an actual change no version is made.

    A change based on an older version is stored next to the current one as a conflict, if the first version that the
    writer missed is younger than the conflict window; otherwise it is refused (decision 15). ``window`` replaces the
    project's conflict window.

    Raises:
        NotFound: there is no such memory.
        Gone: it is deleted.
        PreconditionFailed: ``base_version`` is not current, and the window has passed; the data has the current one.
        ConflictError: another memory has the new title.
        Invalid: the kind has no such type or attribute, or there is nothing to promote.
    """
    if window is None:
        seconds = 0 if command.must_be_current else project_settings().conflict_window_seconds
        window = timedelta(seconds=seconds)
    with scopes.writing(command.scope) as scope:
        with log.transaction():
            result = _update(command, window, scope)
        return with_memory(result)


def _update(command: MemoryUpdate, window: timedelta, scope: MemoryScope) -> WriteResult:
    first = log.find_by_key(command.idempotency_key, MEMORY_REVISED, ENTRY_ANCHORED)
    if first:
        return result_of(first)
    memory = live_memory(command.id)
    existing = Existing.of(memory)
    unseen = _unseen(memory, command.base_version, window)
    read = existing.state if unseen is None else state_at(memory.id, command.base_version or 1)
    state = _changed(read, command)
    sanitized = log.prepare(MEMORY_WRITTEN, MemoryWritten.of_stored(state.columns())).payload
    if not existing.differs(sanitized):
        return _anchored(existing, command)
    if (state.title, state.scope) != (existing.state.title, existing.state.scope):
        refuse_taken_title(existing, state)
    provenance = None
    is_new_text = (state.title, state.content) != (existing.state.title, existing.state.content)
    if is_new_text or command.anchors is not None:
        provenance = provenance_of_memory(state, current_workplace(scope), command.anchors)
    base = command.base_version or existing.version
    return append_version(
        existing,
        state,
        base=base,
        reason=command.change_reason,
        key=command.idempotency_key,
        unseen=unseen,
        provenance=provenance,
    )


# A change of nothing but the anchors makes no version
def _anchored(existing: Existing, command: MemoryUpdate) -> WriteResult:
    if command.anchors is None:
        return write_result(existing, WriteStatus.UNCHANGED)
    change = AnchorsChange(id=existing.id, anchors=command.anchors, reason=command.change_reason)
    is_changed = change_anchors(command=change, key=command.idempotency_key).is_changed
    return write_result(existing, WriteStatus.ANCHORED if is_changed else WriteStatus.UNCHANGED)


def restore_version(*, command: MemoryRestore) -> WriteResult:
    """Make an earlier version current again, as a new version.

    Raises:
        NotFound: there is no such memory or version.
        Gone: the memory is deleted.
        ConflictError: another memory has the title of that version.
    """
    with scopes.writing(command.scope), log.transaction():
        first = log.find_by_key(command.idempotency_key, MEMORY_REVISED)
        if first:
            return result_of(first)
        existing = Existing.of(live_memory(command.id))
        state = state_at(command.id, command.version or existing.version)
        if not existing.differs(state):
            return with_memory(write_result(existing, WriteStatus.UNCHANGED))
        refuse_taken_title(existing, state)
        reason = command.reason or f"version {command.version} restored"
        result = append_version(
            existing,
            state,
            base=existing.version,
            reason=reason,
            key=command.idempotency_key,
            provenance=provenance_at(command.id, command.version or existing.version),
        )
        return with_memory(result)


def append_version(
    existing: Existing,
    state: MemoryState,
    *,
    base: int,
    reason: str,
    key: str | None = None,
    unseen: int | None = None,
    review: ReviewStatus | None = None,
    revised_at: str | None = None,
    provenance: ProvenanceRecord | None = None,
    copied: CopiedFrom | None = None,
) -> WriteResult:
    """Append the next version of ``existing``; needs an open transaction of the log.

    Args:
        existing: the memory; advanced to the new version.
        state: the new state.
        base: the version it is based on.
        reason: of the change.
        key: idempotency key of the call.
        unseen: the version that the writer missed, which makes it a conflict.
        review: review status; default: as the project's policy decides.
        revised_at: when another tool made the change; default: now.
        provenance: where the new text was learnt; default: where the last one was.
        copied: what the new text is a copy of; default: as its session shows.
    """
    review = review or ReviewGate().of_revision(existing, state)
    stored_review = None if review == ACCEPTED else review
    payload = MemoryRevised.of_stored(
        {
            **state.columns(),
            "memory_id": existing.id,
            "version": existing.version + 1,
            "base_version": base,
            "reason": reason,
            **filled(conflicts_with=unseen, review=stored_review, revised_at=revised_at, provenance=provenance),
            **filled(copied_from=copied or copied_from(state.title, state.content, existing)),
        }
    )
    draft = log.prepare(MEMORY_REVISED, payload)
    event = log.append(draft, stream=f"memory:{existing.id}", idempotency_key=key)
    written = draft.payload
    same_text = (existing.state.title, existing.state.content) == (written.title, written.content)
    embedding = Embedding.KEPT if same_text else None
    existing.revised(written, written.review)
    if unseen is None:
        return write_result(existing, WriteStatus.UPDATED, redacted=draft.redactions, embedding=embedding)
    result = write_result(existing, WriteStatus.CONFLICT, redacted=draft.redactions, embedding=embedding)
    return result.model_copy(update={"conflict": event.position})


# The version that a writer who read ``base`` has missed, or None. Refuses the change once the conflict window has
# passed (decision 15).
def _unseen(memory: Memory, base: int | None, window: timedelta) -> int | None:
    if base is None or base == memory.version:
        return None
    missed = MemoryVersion.objects.filter(memory_id=memory.id, version=base + 1).first()
    if missed and abs(clock.now() - missed.created_at) < window:
        return int(memory.version)
    raise PreconditionFailed(
        f"#{memory.id} is at version {memory.version}, but you read version {base}; read it again, then update",
        id=memory.id,
        version=memory.version,
    )


def _changed(before: MemoryState, command: MemoryUpdate) -> MemoryState:
    refuse_echo(command.content or "")
    changes: dict[str, Any] = command.model_dump(include=_CHANGEABLE, exclude_none=True)
    if command.type is not None:
        changes["type"] = check_type(before.kind, command.type)
    if command.attributes is not None:
        changes["attributes"] = check_attributes(before.kind, {**before.attributes, **command.attributes})
    if command.promote:
        if before.scope is not MemoryScope.SESSION:
            raise Invalid(
                f"promote is for memories in scope session, but this one is in scope {before.scope}; to copy it "
                "elsewhere, use memory_write"
            )
        changes["scope"] = MemoryScope.PROJECT
    return before.with_changes(**changes)


# A title or topic that the project has already gives way, so that no entry is lost.
def promote_entries(ids: Sequence[int]) -> None:
    """Move memories of a scratch session from the session to the project; needs an open transaction of the log."""
    memories = Memory.objects.live().filter(id__in=ids, scope=MemoryScope.SESSION).order_by("id")
    moving = [Existing.of(memory) for memory in memories]
    states = [existing.state.with_changes(scope=MemoryScope.PROJECT) for existing in moving]
    of_project = ExistingMemories(states, session_id="")
    for existing, state in zip(moving, states, strict=True):
        renamed = state.with_changes(title=f"{state.title[:180]} (#{existing.id})", topic_key=None)
        promoted = renamed if of_project.named_like(state) else state
        append_version(existing, promoted, base=existing.version, reason="promoted at the end of its scratch session")


def scratch_entries(session_id: str) -> dict[int, str]:
    """Return the titles of the live memories of a scratch session that has not ended, by id."""
    memories = Memory.objects.live().filter(session_id=session_id, ephemeral=True).order_by("id")
    return dict(memories.values_list("id", "title"))


scratch.append((scratch_entries, promote_entries))


def live_memory(memory_id: int) -> Memory:
    """Return the memory.

    Raises:
        NotFound: there is no such memory.
        Gone: it is deleted or in quarantine.
    """
    memory = find_memory(memory_id)
    if memory.deleted_at:
        raise Gone(f"memory #{memory_id} is deleted; restore it first", id=memory_id)
    aside = quarantine_marks([memory_id])
    if aside:
        raise Gone(
            f"memory #{memory_id} is {aside[memory_id]}; a person can undo that, or write a new memory", id=memory_id
        )
    return memory


def refuse_taken_title(existing: Existing, state: MemoryState) -> None:
    """Refuse a topic that another memory of the scope has; without a topic, the title of one of the same kind.

    Raises:
        ConflictError: it is taken; the data has the id.
    """
    rival = ExistingMemories([state], existing.session_id).named_like(state)
    if rival is None or rival.id == existing.id:
        return
    if state.topic_key:
        raise ConflictError(
            f"#{rival.id} has topic {state.topic_key!r} in scope {state.scope}; update that one, or delete it first",
            id=rival.id,
        )
    raise ConflictError(
        f"{word_for(state.kind)} {state.title!r} of scope {state.scope} exists as #{rival.id}; choose another title, "
        "or update that one",
        id=rival.id,
    )


def write_result(
    existing: Existing,
    status: WriteStatus,
    *,
    redacted: Iterable[str] = (),
    embedding: Embedding | None = None,
    settings: ProjectSettings | None = None,
) -> WriteResult:
    """Return the result of a write.

    Args:
        existing: the memory after the write.
        status: what the write did.
        redacted: types of the secrets that were replaced.
        embedding: default: queued if a text was written and the project has embeddings.
        settings: of the project; read if they are needed.
    """
    if embedding is None and status in _TEXT_WRITTEN:
        embedding = renewal(settings)
    return WriteResult(
        id=existing.id,
        version=existing.version,
        status=status,
        title=existing.state.title,
        scope=existing.state.scope,
        redacted=list(redacted),
        embedding=embedding,
        review=existing.status.state,
        review_reason=existing.status.reason,
        accepted_version=existing.status.accepted_version,
    )


def with_deletion(result: WriteResult, at: datetime | None) -> WriteResult:
    """Add when the memory was deleted, if the result is of a deletion."""
    if result.status not in (WriteStatus.DELETED, WriteStatus.ERASED):
        return result
    can_restore = result.status is WriteStatus.DELETED
    return result.model_copy(update={"deleted_at": at, "permanent": not can_restore, "can_restore": can_restore})


_STORED = "SELECT tags, created_at, updated_at, type, title, content FROM memories_memory WHERE id = %s"


def with_memory(result: WriteResult) -> WriteResult:
    """Add the type, tags and times that the memory has after the write, and what a new text seems to amend.

    Its store must be current. The write lock need not be held, since the texts of other entries are read.
    """
    # Plain SQL: every write runs it
    stored = rows.fetch(_STORED, [result.id])
    if not stored:
        return result
    tags, created_at, updated_at, memory_type, title, content = stored[0]
    update: dict[str, Any] = {"tags": json.loads(tags), "memory_type": memory_type, "title": title}
    update |= {"created_at": rows.time_of(created_at), "updated_at": rows.time_of(updated_at)}
    if result.status in _TEXT_WRITTEN and result.embedding is not Embedding.KEPT:
        update["amendments"] = find_amendments(result.id, TitledText(content, title))
    return result.model_copy(update=update)


def result_of(event: log.StoredEvent, redactions: Iterable[str] = ()) -> WriteResult:
    """Return the result of a repeated call with the same idempotency key."""
    memory = find_memory(int(event.stream_id.removeprefix("memory:")))
    status = WriteStatus.of_event(event.event_type)
    result = write_result(Existing.of(memory), status, redacted=redactions)
    return with_memory(with_deletion(result, memory.deleted_at))


def resolve_conflict(*, command: ConflictResolve) -> ConflictResult:
    """Resolve a conflict: keep one version, merge them, or make the earlier one a memory of its own.

    The chosen state becomes a new version unless it is current already. No version is deleted.

    Raises:
        NotFound: there is no such conflict.
        ConflictError: it is resolved already, or a title is taken.
        Gone: the memory is deleted.
        Invalid: ``merge`` without the merged text, or a text without ``merge``.
    """
    if command.resolution is Resolution.MERGE and command.content is None:
        raise Invalid("resolution merge needs 'content', the merged text")
    if command.resolution is not Resolution.MERGE and command.content is not None:
        raise Invalid(f"'content' is for resolution merge, not for {command.resolution}; leave it out")
    with scopes.writing(command.scope), log.transaction():
        first = log.find_by_key(command.idempotency_key, CONFLICT_RESOLVED)
        if first:
            return _conflict_result(find_conflict(command.id))
        conflict = _open_conflict(command.id)
        existing = Existing.of(live_memory(conflict.memory_id))
        _apply_resolution(existing, conflict, command)
        split_id = _split(existing, conflict, command) if command.resolution is Resolution.BOTH else None
        payload = ConflictResolved(
            conflict_id=conflict.id,
            memory_id=existing.id,
            resolution=command.resolution,
            version=existing.version,
            split_id=split_id,
            reason=command.reason,
            **filled(resolved_by=command.resolved_by),
        )
        draft = log.prepare(CONFLICT_RESOLVED, payload)
        log.append(draft, stream=f"memory:{existing.id}", idempotency_key=command.idempotency_key)
        return _conflict_result(find_conflict(command.id))


def _open_conflict(conflict_id: int) -> VersionConflict:
    conflict = find_conflict(conflict_id)
    if conflict.resolved_at:
        raise ConflictError(
            f"conflict #{conflict_id} was resolved with {conflict.resolution} by {conflict.resolved_by}", id=conflict_id
        )
    return conflict


def _apply_resolution(existing: Existing, conflict: VersionConflict, command: ConflictResolve) -> None:
    state = existing.state
    if command.resolution is Resolution.KEEP_A:
        state = state_at(existing.id, conflict.version_a)
    elif command.resolution is Resolution.KEEP_B:
        state = state_at(existing.id, conflict.version_b)
    elif command.resolution is Resolution.MERGE:
        state = state.with_changes(content=command.content, title=command.title or state.title)
    if not existing.differs(state):
        return
    if state.title != existing.state.title:
        refuse_taken_title(existing, state)
    reason = command.reason or f"conflict #{conflict.id}: {command.resolution}"
    provenance = None
    if command.resolution is Resolution.KEEP_A:
        provenance = provenance_at(existing.id, conflict.version_a)
    append_version(existing, state, base=existing.version, reason=reason, provenance=provenance)


def _split(existing: Existing, conflict: VersionConflict, command: ConflictResolve) -> int:
    earlier = state_at(existing.id, conflict.version_a)
    title = command.title or f"{earlier.title[:180]} (version {conflict.version_a} of #{existing.id})"
    fields = {**earlier.columns(), "title": title, "topic_key": None}
    if earlier.scope is MemoryScope.SESSION:
        fields["scope"] = MemoryScope.PROJECT
    payload = MemoryWritten.of_stored(fields)
    copied = copied_from(earlier.title, earlier.content, existing)
    payload = payload.model_copy(update={"review": ReviewGate().of_new(payload), "copied_from": copied})
    refuse_taken_title(Existing(0, 0, existing.session_id, payload), payload)
    return log.append(log.prepare(MEMORY_WRITTEN, payload), entity="memory").position


def _conflict_result(conflict: VersionConflict) -> ConflictResult:
    return ConflictResult(
        id=conflict.id,
        memory_id=conflict.memory_id,
        version=conflict.resolved_version or 0,
        resolution=Resolution(conflict.resolution),
        split_id=conflict.split_id,
    )
