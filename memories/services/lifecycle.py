"""Deleting memories and bringing them back."""

from __future__ import annotations

from collections.abc import Callable

from memories import scopes
from memories.events import MEMORY_DELETED, MEMORY_RESTORED, MemoryTouched
from memories.existing import Existing, ExistingMemories, standing_of
from memories.models import Memory
from memories.schemas import MemoryDelete, MemoryRestore, MemoryTouch, WriteResult, WriteStatus
from memories.selectors.memories import find_memory
from memories.services.erase import erase_memory
from memories.services.results import live_memory, result_of, with_embedding, with_standing, written
from memories.services.revise import restore_version
from memoryhub.core import log
from memoryhub.core.errors import Conflict
from memoryhub.core.event_types import EventType
from memoryhub.core.permissions import Act, demand


def delete_memory(*, command: MemoryTouch) -> WriteResult:
    """Delete a memory softly: it leaves lists and searches, and can be restored. ``permanent`` erases a deleted one.

    Raises:
        NotFound: there is no such memory.
        Gone: it is deleted already.
        ConfirmationRequired, PreconditionFailed: as ``erase_memory``.
        Forbidden: the caller may not erase.
    """
    if isinstance(command, MemoryDelete) and command.permanent:
        demand(Act.GOVERN)
        return erase_memory(command=command)
    return _touch(MEMORY_DELETED, command, WriteStatus.DELETED, live_memory)


def restore_memory(*, command: MemoryTouch) -> WriteResult:
    """Bring a deleted memory back; with ``version``, make that version of a memory the current one again.

    Raises:
        NotFound: there is no such memory or version.
        Conflict: it is not deleted, or another memory has taken its topic or title.
    """
    if isinstance(command, MemoryRestore) and command.version:
        return restore_version(command=command)
    return _touch(MEMORY_RESTORED, command, WriteStatus.RESTORED, _restorable)


def _touch(
    event_type: EventType[MemoryTouched], command: MemoryTouch, status: WriteStatus, find: Callable[[int], Memory]
) -> WriteResult:
    with scopes.writing(command.scope), log.transaction():
        first = log.find_by_key(command.idempotency_key, event_type)
        if first:
            return result_of(first)
        memory = find(command.id)
        draft = log.prepare(event_type, MemoryTouched(memory_id=memory.id, reason=command.reason))
        log.append(draft, stream=f"memory:{memory.id}", idempotency_key=command.idempotency_key)
        result = written(memory.id, memory.version, status, memory, draft)
        return with_embedding([with_standing(result, standing_of(memory))])[0]


def _restorable(memory_id: int) -> Memory:
    memory = find_memory(memory_id)
    if memory.deleted_at is None:
        raise Conflict(f"memory #{memory_id} is not deleted", id=memory_id)
    state = Existing.of(memory).state
    existing = ExistingMemories([state], memory.session_id)
    rival = existing.of_topic(state) or (None if state.topic_key else existing.of_title(state))
    if rival:
        raise Conflict(
            f"#{rival.id} has the topic or title of #{memory_id} now; change or delete it first", id=rival.id
        )
    return memory
