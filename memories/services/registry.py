"""What changes the registry: tools, guidelines and knowledge, each known by its name in its scope."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from memories.models import MemoryKind
from memories.schemas import MemoryDelete, MemoryUpdate, MemoryWrite, WriteResult
from memories.schemas.registry import EntryRef
from memories.selectors.registry import check_scope_id, find_entry
from memories.services.lifecycle import delete_memory
from memories.services.revise import update_memory
from memories.services.write import write_memory
from memoryhub.core.origin import use_origin


def add_entry(*, command: MemoryWrite, scope_id: str = "") -> WriteResult:
    """Add an entry.

    Raises:
        Conflict: the name is taken in that scope; the data names the id.
        Invalid: as ``write_memory``, or ``scope_id`` is not the scope that holds here.
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
        author: who makes this version; default: the caller.

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
    """Delete an entry softly; its name is free then, and its history stays.

    Raises:
        NotFound, Gone, Invalid: as ``find_entry``.
    """
    found = find_entry(kind=kind, entry=entry.model_copy(update={"include_deleted": entry.id is not None}))
    command = MemoryDelete(id=found["id"], scope=found["scope"], reason=reason, idempotency_key=idempotency_key)
    with _acting(author):
        return delete_memory(command=command)


@contextmanager
def _acting(author: str) -> Iterator[None]:
    """Let the event say who acts, where a client speaks for one of several agents."""
    with use_origin(**({"actor": author} if author else {})):
        yield
