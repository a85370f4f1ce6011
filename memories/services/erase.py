"""Permanent deletion: removes a text from the log, the read models, the indexes and the file."""

from __future__ import annotations

import hashlib
import logging

from django.db import DatabaseError

from memories import scopes
from memories.embeddings.vectors import forget_files
from memories.models import Memory
from memories.schemas import MemoryDelete, WriteResult, WriteStatus
from memories.search.index import forget_removed
from memories.selectors.memories import find_memory
from memories.services.results import with_deletion
from memories.services.traces import Traces
from memoryhub.core import log
from memoryhub.core.errors import ConfirmationRequired, PreconditionFailed
from memoryhub.core.models import RawEvent
from memoryhub.core.permissions import Act, demand
from memoryhub.core.stores.store import StoreId, current_store, use_store
from memoryhub.core.stores.wiping import wipe_free_space
from memoryhub.core.text import counted

logger = logging.getLogger(__name__)


def erase_memory(*, command: MemoryDelete) -> WriteResult:
    """Erase every version of a soft-deleted memory. Events and their digests stay, so the chain still verifies.

    Context packs whose question quotes the text are erased with it, and the text is removed from spooled hook events.
    Afterwards the text is not in the store's files, unless another event quotes it. Older backups still contain it.

    Raises:
        NotFound: there is no such memory.
        Forbidden: the caller may not govern the memory's store.
        PreconditionFailed: it is not deleted.
        ConfirmationRequired: ``confirm_token`` is not the one in this error.
        Locked: another process holds the spool.
    """
    reason, caller = command.reason or "permanently deleted", current_store()
    # See decisions 6 and 31
    with scopes.writing(command.scope):
        demand(Act.GOVERN)  # in the memory's own store, and before packs of the caller's are erased
        memory = find_memory(command.id)
        traces = Traces(_positions(memory), caller)
        _require_confirmation(memory, traces, command.confirm_token)
        with traces.cleaning() as clean_spool:
            if caller != current_store():
                _erase_packs_of(caller, traces, reason)
            with log.transaction():
                memory = find_memory(command.id)
                _require_confirmation(memory, traces, command.confirm_token)
                log.erase_streams([f"memory:{memory.id}"], reason=reason)
                traces.erase_packs(reason=reason)
                clean_spool()  # before the commit: afterwards the text is gone and could not be searched
        wipe_traces()
        erased = WriteResult(
            id=memory.id, version=memory.version, status=WriteStatus.ERASED, title="", scope=memory.scope
        )
        return with_deletion(erased, memory.deleted_at)


def _erase_packs_of(store: StoreId, traces: Traces, reason: str) -> None:
    with use_store(store):
        if traces.erase_packs(reason=reason):
            wipe_traces()


def _positions(memory: Memory) -> list[int]:
    found = RawEvent.objects.filter(stream_id=f"memory:{memory.id}")
    return list(found.values_list("position", flat=True))


def wipe_traces() -> bool:
    """Remove erased and redacted bytes from the files of the current store.

    Returns False if the store was locked or the disk is full; an hourly job retries.
    """
    try:
        forget_removed()
        forget_files()
    except DatabaseError as error:
        logger.warning("the index of %s could not be cleared: %s", current_store().name, error)
        return False
    return wipe_free_space()


def _require_confirmation(memory: Memory, traces: Traces, token: str | None) -> None:
    if memory.deleted_at is None:
        raise PreconditionFailed(
            f"memory #{memory.id} is not deleted; delete it first, then again with permanent=true", id=memory.id
        )
    wanted = _token(memory)
    if token != wanted:
        raise ConfirmationRequired(
            f"permanently delete #{memory.id} {memory.title!r} with its {counted(memory.version, 'version')}"
            f"{_quoting(traces)}? Its text cannot be restored",
            id=memory.id,
            confirm_token=wanted,
        )


def _quoting(traces: Traces) -> str:
    packs, waiting = traces.count_packs(), len(traces.find_spooled().lines)
    parts = [f", {counted(packs, 'context pack')} whose question quotes it"] if packs else []
    if waiting:
        parts.append(f", and its text in {counted(waiting, 'spooled event')}")
    return "".join(parts)


# Bound to the last event: the token expires when the memory changes or is restored
def _token(memory: Memory) -> str:
    last = RawEvent.objects.filter(stream_id=f"memory:{memory.id}").order_by("-position").first()
    digest = last.chain_digest if last else ""
    return hashlib.sha256(f"erase memory {memory.id} at {digest}".encode()).hexdigest()[:16]
