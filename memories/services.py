"""What changes memories; each function appends events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from memories.events import (
    MEMORY_DELETED,
    MEMORY_RESTORED,
    MEMORY_REVISED,
    MEMORY_SEEN,
    MEMORY_WRITTEN,
    MemoryRevised,
    MemoryState,
    MemoryTouched,
    MemoryWritten,
)
from memories.existing import Existing, ExistingMemories
from memories.models import Memory
from memories.schemas import IfExists, MemoryTouch, MemoryUpdate, MemoryWrite, WriteResult, WriteStatus
from memoryhub.core import log
from memoryhub.core.errors import Conflict, Gone, NotFound, PreconditionFailed
from memoryhub.core.log import Draft
from memoryhub.core.models import RawEvent
from memoryhub.core.origin import current_origin
from memoryhub.core.projection import EventType

_BATCH = 500
_STATE_FIELDS = frozenset(MemoryState.model_fields)


def write_memory(*, command: MemoryWrite) -> WriteResult:
    """Write one memory.

    The same ``topic_key`` revises the memory of that topic; identical content counts up instead; a title that is
    taken is met as ``if_exists`` says.

    Raises:
        Conflict: the title is taken and ``if_exists`` is ``error``; the data names the id.
    """
    return write_memories(commands=[command])[0]


def write_memories(*, commands: Sequence[MemoryWrite]) -> list[WriteResult]:
    """Write many memories, 500 to a transaction; an error keeps the transactions before it.

    Raises:
        Conflict: as ``write_memory``.
    """
    results: list[WriteResult] = []
    for start in range(0, len(commands), _BATCH):
        batch = commands[start : start + _BATCH]
        drafts = [log.prepare(MEMORY_WRITTEN, _written(command)) for command in batch]
        with log.transaction():
            existing = ExistingMemories([draft.payload for draft in drafts])
            results += [_write(command, draft, existing) for command, draft in zip(batch, drafts, strict=True)]
    return results


def _written(command: MemoryWrite) -> MemoryWritten:
    fields = command.model_dump(exclude={"if_exists", "idempotency_key"}, exclude_unset=True)
    fields["author"] = command.author or current_origin().actor
    return MemoryWritten(**fields)


def _write(command: MemoryWrite, draft: Draft[MemoryWritten], existing: ExistingMemories) -> WriteResult:
    first = log.find_by_key(command.idempotency_key, MEMORY_WRITTEN, MEMORY_REVISED, MEMORY_SEEN)
    if first:
        return _result_of(first, draft.redactions)
    payload, key = draft.payload, command.idempotency_key
    topic = existing.of_topic(payload.topic_key)
    if topic:
        return _revise(topic, draft, key) if topic.differs(payload) else _kept(topic, WriteStatus.UNCHANGED)
    same = None if payload.topic_key else existing.of_content(payload.content)
    if same:
        return _count_up(same, key)
    titled = None if payload.topic_key else existing.of_title(payload.title)
    if titled:
        return _meet_title(titled, command, draft)
    event = log.append(draft, entity="memory", idempotency_key=key)
    existing.add(event.position, payload)
    return _result(event.position, 1, WriteStatus.CREATED, payload.title, draft)


def _meet_title(existing: Existing, command: MemoryWrite, draft: Draft[MemoryWritten]) -> WriteResult:
    if command.if_exists is IfExists.KEEP:
        return _kept(existing, WriteStatus.KEPT)
    if command.if_exists is IfExists.UPDATE:
        return _revise(existing, draft, command.idempotency_key)
    raise Conflict(
        f"a memory titled {existing.state.title!r} exists as #{existing.id}; update it, choose another title, "
        "or pass if_exists=update or keep",
        id=existing.id,
        version=existing.version,
    )


def _kept(existing: Existing, status: WriteStatus) -> WriteResult:
    return WriteResult(id=existing.id, version=existing.version, status=status, title=existing.state.title)


def _count_up(existing: Existing, key: str | None) -> WriteResult:
    draft = log.prepare(MEMORY_SEEN, MemoryTouched(memory_id=existing.id))
    log.append(draft, stream=f"memory:{existing.id}", idempotency_key=key)
    return _kept(existing, WriteStatus.SEEN)


def _revise(existing: Existing, draft: Draft[MemoryWritten], key: str | None) -> WriteResult:
    merged = {**existing.state.model_dump(), **draft.payload.model_dump(exclude_unset=True)}
    result = _append_version(existing, MemoryState(**merged), base=existing.version, reason="", key=key)
    return result.model_copy(update={"redacted": list(draft.redactions)})


def _append_version(existing: Existing, state: MemoryState, *, base: int, reason: str, key: str | None) -> WriteResult:
    payload = MemoryRevised(
        **state.model_dump(), memory_id=existing.id, version=existing.version + 1, base_version=base, reason=reason
    )
    draft = log.prepare(MEMORY_REVISED, payload)
    log.append(draft, stream=f"memory:{existing.id}", idempotency_key=key)
    existing.revised(draft.payload)
    return _result(existing.id, existing.version, WriteStatus.UPDATED, draft.payload.title, draft)


def update_memory(*, command: MemoryUpdate) -> WriteResult:
    """Change parts of a memory; a change that changes nothing makes no version.

    Raises:
        NotFound: there is no such memory.
        Gone: it is deleted; restore it first.
        PreconditionFailed: ``base_version`` is not the current version; the data names it.
        Conflict: another memory has the new title.
    """
    with log.transaction():
        first = log.find_by_key(command.idempotency_key, MEMORY_REVISED)
        if first:
            return _result_of(first, ())
        existing = Existing.of(_live(command.id))
        _check_base(existing, command.base_version)
        changes = command.model_dump(include=set(_STATE_FIELDS), exclude_none=True)
        state = MemoryState(**{**existing.state.model_dump(), **changes})
        clean = log.prepare(MEMORY_WRITTEN, MemoryWritten(**state.model_dump())).payload
        if not existing.differs(clean):
            return _kept(existing, WriteStatus.UNCHANGED)
        _refuse_taken_title(existing, clean)
        base = command.base_version or existing.version
        return _append_version(existing, state, base=base, reason=command.change_reason, key=command.idempotency_key)


def _check_base(existing: Existing, base: int | None) -> None:
    if base is not None and base != existing.version:
        raise PreconditionFailed(
            f"#{existing.id} is at version {existing.version}, and you read version {base}; read it again, then update",
            id=existing.id,
            version=existing.version,
        )


def _refuse_taken_title(existing: Existing, state: MemoryState) -> None:
    if existing.state.topic_key or state.title == existing.state.title:
        return
    taken = ExistingMemories([state]).of_title(state.title)
    if taken and taken.id != existing.id:
        raise Conflict(f"a memory titled {state.title!r} exists as #{taken.id}; choose another title", id=taken.id)


def delete_memory(*, command: MemoryTouch) -> WriteResult:
    """Delete a memory softly: it leaves lists and searches, and can be restored.

    Raises:
        NotFound: there is no such memory.
        Gone: it is deleted already.
    """
    return _touch(MEMORY_DELETED, command, WriteStatus.DELETED, _live)


def restore_memory(*, command: MemoryTouch) -> WriteResult:
    """Bring a deleted memory back.

    Raises:
        NotFound: there is no such memory.
        Conflict: it is not deleted, or another memory has taken its topic or title.
    """
    return _touch(MEMORY_RESTORED, command, WriteStatus.RESTORED, _restorable)


def _touch(
    event_type: EventType[MemoryTouched], command: MemoryTouch, status: WriteStatus, find: Callable[[int], Memory]
) -> WriteResult:
    with log.transaction():
        first = log.find_by_key(command.idempotency_key, event_type)
        if first:
            return _result_of(first, ())
        memory = find(command.id)
        draft = log.prepare(event_type, MemoryTouched(memory_id=memory.id, reason=command.reason))
        log.append(draft, stream=f"memory:{memory.id}", idempotency_key=command.idempotency_key)
        return _result(memory.id, memory.version, status, memory.title, draft)


def find_memory(memory_id: int) -> Memory:
    """Return the memory, deleted or not.

    Raises:
        NotFound: there is none of that id.
    """
    memory: Memory | None = Memory.objects.filter(id=memory_id).first()
    if memory is None:
        raise NotFound(f"there is no memory #{memory_id} here; search or list to find its id", id=memory_id)
    return memory


def _live(memory_id: int) -> Memory:
    memory = find_memory(memory_id)
    if memory.deleted_at:
        raise Gone(f"memory #{memory_id} is deleted; bring it back with memory_restore", id=memory_id)
    return memory


def _restorable(memory_id: int) -> Memory:
    memory = find_memory(memory_id)
    if memory.deleted_at is None:
        raise Conflict(f"memory #{memory_id} is not deleted", id=memory_id)
    existing = ExistingMemories([Existing.of(memory).state])
    rival = existing.of_topic(memory.topic_key) or (None if memory.topic_key else existing.of_title(memory.title))
    if rival:
        raise Conflict(
            f"#{rival.id} has the topic or title of #{memory_id} now; change or delete it first", id=rival.id
        )
    return memory


_STATUS_OF_EVENT = {
    MEMORY_WRITTEN.name: WriteStatus.CREATED,
    MEMORY_REVISED.name: WriteStatus.UPDATED,
    MEMORY_SEEN.name: WriteStatus.SEEN,
    MEMORY_DELETED.name: WriteStatus.DELETED,
    MEMORY_RESTORED.name: WriteStatus.RESTORED,
}


def _result_of(event: RawEvent, redactions: Sequence[str]) -> WriteResult:
    memory = find_memory(int(event.stream_id.removeprefix("memory:")))
    status = _STATUS_OF_EVENT[event.event_type]
    return WriteResult(
        id=memory.id, version=memory.version, status=status, title=memory.title, redacted=list(redactions)
    )


def _result(memory_id: int, version: int, status: WriteStatus, title: str, draft: Draft[Any]) -> WriteResult:
    return WriteResult(id=memory_id, version=version, status=status, title=title, redacted=list(draft.redactions))
