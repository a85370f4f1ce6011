"""Permanent deletion: the text leaves the log, the read models, the indexes and the file."""

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
from memoryhub.core import log
from memoryhub.core.errors import ConfirmationRequired, PreconditionFailed
from memoryhub.core.models import RawEvent
from memoryhub.core.stores import current_store
from memoryhub.core.vacuum import wipe_free_space
from memoryhub.core.wording import counted

logger = logging.getLogger(__name__)


def erase_memory(*, command: MemoryDelete) -> WriteResult:
    """Erase every version of a softly deleted memory; its events and their digests stay, so the chain still verifies.

    Afterwards no byte of the text is in the store's files. Backups that were made before still have it.

    Raises:
        NotFound: there is no such memory.
        PreconditionFailed: it is not deleted.
        ConfirmationRequired: ``confirm_token`` is not the one that this error names.
    """
    with scopes.writing(command.scope):
        with log.transaction():
            memory = find_memory(command.id)
            _require_confirmation(memory, command.confirm_token)
            log.erase_streams([f"memory:{memory.id}"], reason=command.reason or "deleted for good")
        wipe_traces()
        return WriteResult(
            id=memory.id, version=memory.version, status=WriteStatus.ERASED, title="", scope=memory.scope
        )


def wipe_traces() -> bool:
    """Leave no byte in the current store's files of what was erased or redacted.

    Returns False where others held the store, or the disk is full: an hourly job does it again.
    """
    try:
        forget_removed()
        forget_files()
    except DatabaseError as error:
        logger.warning("the index of %s could not be cleared: %s", current_store().name, error)
        return False
    return wipe_free_space()


def _require_confirmation(memory: Memory, token: str | None) -> None:
    if memory.deleted_at is None:
        raise PreconditionFailed(
            f"memory #{memory.id} is not deleted; delete it without permanent first, then for good", id=memory.id
        )
    wanted = _token(memory)
    if token != wanted:
        raise ConfirmationRequired(
            f"permanently delete #{memory.id} {memory.title!r} with its {counted(memory.version, 'version')}? "
            "Its text cannot be brought back",
            id=memory.id,
            confirm_token=wanted,
        )


def _token(memory: Memory) -> str:
    """Return a token for the memory as it stands: once it changes, or is restored, the token is another."""
    last = RawEvent.objects.filter(stream_id=f"memory:{memory.id}").order_by("-position").first()
    digest = last.chain_digest if last else ""
    return hashlib.sha256(f"erase memory {memory.id} at {digest}".encode()).hexdigest()[:16]
