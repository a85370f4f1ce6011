from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from memories import scopes
from memories.duplicates import Existing, ExistingMemories, review_status_of
from memories.events import MEMORY_DELETED, MEMORY_RESTORED, MemoryTouched
from memories.models import Memory, MemoryKind
from memories.schemas import (
    MemoryDelete,
    MemoryRestore,
    MemoryTouch,
    MemoryUpdate,
    MemoryWrite,
    WriteResult,
    WriteStatus,
)
from memories.schemas.registry import EntryRef
from memories.selectors.memories import find_memory
from memories.selectors.registry import check_scope_id, find_entry
from memories.services.erase import erase_memory
from memories.services.results import (
    live_memory,
    result_of,
    with_deletion,
    with_embedding,
    with_memory,
    with_review_status,
    written,
)
from memories.services.revise import restore_version, update_memory
from memories.services.write import write_memory
from memoryhub.core import log
from memoryhub.core.errors import Conflict
from memoryhub.core.events.event_types import EventType
from memoryhub.core.origin import use_origin


def delete_memory(*, command: MemoryTouch) -> WriteResult:
    """Soft-delete a memory: it leaves lists and searches, and can be restored. ``permanent`` erases a deleted one.

    Raises:
        NotFound: there is no such memory.
        Gone: it is deleted already.
        ConfirmationRequired, PreconditionFailed: as ``erase_memory``.
        Forbidden: the caller may not erase.
    """
    if isinstance(command, MemoryDelete) and command.permanent:
        return erase_memory(command=command)
    return _touch(MEMORY_DELETED, command, WriteStatus.DELETED, live_memory)


def restore_memory(*, command: MemoryTouch) -> WriteResult:
    """Undelete a memory; with ``version``, make that version current again.

    Raises:
        NotFound: there is no such memory or version.
        Conflict: it is not deleted, or another memory has its topic or title.
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
        event = log.append(draft, stream=f"memory:{memory.id}", idempotency_key=command.idempotency_key)
        result = written(memory.id, memory.version, status, memory, draft)
        result = with_embedding([with_review_status(result, review_status_of(memory))])[0]
        return with_memory(with_deletion(result, event.occurred_at))


def _restorable(memory_id: int) -> Memory:
    memory = find_memory(memory_id)
    if memory.deleted_at is None:
        raise Conflict(f"memory #{memory_id} is not deleted", id=memory_id)
    state = Existing.of(memory).state
    existing = ExistingMemories([state], memory.session_id)
    rival = existing.of_topic(state) or (None if state.topic_key else existing.of_title(state))
    if rival:
        raise Conflict(
            f"#{rival.id} has taken the topic or title of #{memory_id}; change or delete it first", id=rival.id
        )
    return memory


def add_entry(*, command: MemoryWrite, scope_id: str = "") -> WriteResult:
    """Add a registry entry.

    Raises:
        Conflict: the name is taken in that scope; the data has the id.
        Invalid: as ``write_memory``, or ``scope_id`` is not bound here.
    """
    check_scope_id(command.scope, scope_id)
    with _acting(command.author):
        return write_memory(command=command)


def update_entry(*, kind: MemoryKind, entry: EntryRef, changes: Mapping[str, Any], author: str = "") -> WriteResult:
    """Change parts of an entry, as a new version.

    Args:
        kind: its kind.
        entry: which one; a name means the nearest of that name.
        changes: fields of ``MemoryUpdate``.
        author: of this version; default: the caller.

    Raises:
        NotFound, Gone, Invalid: as ``find_entry``.
        PreconditionFailed, Conflict: as ``update_memory``.
    """
    found = find_entry(kind=kind, entry=entry)
    wanted = {**changes, "id": found["id"], "scope": found["scope"]}
    wanted.pop("author", None)
    with _acting(author):
        return update_memory(command=MemoryUpdate.model_validate(wanted))


def deactivate_entry(
    *, kind: MemoryKind, entry: EntryRef, reason: str = "", author: str = "", idempotency_key: str | None = None
) -> WriteResult:
    """Soft-delete an entry: its name becomes free, its history stays.

    Raises:
        NotFound, Gone, Invalid: as ``find_entry``.
    """
    found = find_entry(kind=kind, entry=entry.model_copy(update={"include_deleted": entry.id is not None}))
    command = MemoryDelete(id=found["id"], scope=found["scope"], reason=reason, idempotency_key=idempotency_key)
    with _acting(author):
        return delete_memory(command=command)


# For clients that act for several agents
@contextmanager
def _acting(author: str) -> Iterator[None]:
    with use_origin(**({"actor": author} if author else {})):
        yield
