"""Memories of kinds with unique titles, by id or by nearest name: tools, guidelines and knowledge."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from memories import scopes
from memories.kind_tools.schemas import NamedMemory, NamedMemoryList
from memories.models import MemoryKind, MemoryScope
from memories.present import entry_line, version_text
from memories.query import query
from memories.schemas import MemoryDelete, MemoryGet, MemoryUpdate, MemoryWrite, WriteResult
from memories.schemas.query import MemoryQuery, QueryOrder, QueryScope, QueryTags
from memories.selectors.memories import get_memories
from memories.services import delete_memory, update_memory, write_memory
from memoryhub.core.errors import Invalid, NotFound
from memoryhub.core.kinds import KINDS
from memoryhub.core.origin import current_origin, use_origin
from memoryhub.core.paging import decode_cursor, encode_cursor, page
from memoryhub.core.schemas import Listing, Paging


def find_entry(*, kind: MemoryKind, entry: NamedMemory, versions: bool = False) -> dict[str, Any]:
    """Return the entry as JSON data.

    Raises:
        NotFound: there is no such entry, or the id belongs to another kind.
        Gone: it is deactivated, and ``include_deleted`` is off.
        Invalid: neither id nor name is given, or the scope is not bound here.
    """
    check_scope_id(entry.scope, entry.scope_id)
    memory = _get(kind, entry, versions=versions)
    if memory["kind"] != kind:
        raise NotFound(f"#{memory['id']} is of kind {memory['kind']}, not {kind}; memory_get reads it", id=memory["id"])
    return memory


def entry_history(*, kind: MemoryKind, entry: NamedMemory, paging: Paging) -> Listing:
    """Return a page of versions, newest first; deactivated entries too.

    Raises:
        NotFound, Invalid: as ``find_entry``.
    """
    memory = _versions(kind, entry)
    last = decode_cursor(paging.cursor, (int,))
    remaining = [version for version in memory["versions"] if last is None or version["version"] < last[0]]
    versions = remaining[: paging.limit]
    entry_fields = {"id": memory["id"], "title": memory["title"], "scope": memory["scope"]}
    compacted = {"content": None, "diff": ""} if paging.compact else {}
    return page(
        [{**entry_fields, **version, **compacted} for version in versions],
        total=len(memory["versions"]),
        more=len(remaining) > len(versions),
        cursor_of=lambda version: encode_cursor(version["version"]),
        line=version_text,
        max_tokens=paging.max_tokens,
    )


def list_entries(*, kind: MemoryKind, command: NamedMemoryList) -> Listing:
    """Return a page of the visible entries, the nearest of each name, in the order of the kind.

    Raises:
        Invalid: the cursor is of another list, or the scope is not bound here.
    """
    check_scope_id(command.scope, command.scope_id)
    scope = command.scope
    if scope is None and not command.inherit:
        scope = scopes.own_scope()
    question = MemoryQuery(
        types=[kind],
        type=command.category,
        tags=QueryTags(require=command.tags),
        scope=QueryScope(type=scope, id=command.scope_id, inherit=command.inherit) if scope else None,
        include_inactive=command.include_deleted,
        order=QueryOrder(KINDS[kind].order),
        **{name: getattr(command, name) for name in Paging.model_fields},
    )
    return query(command=question, line=entry_line)


def check_scope_id(scope: MemoryScope | None, scope_id: str) -> None:
    """Check that a scope id is the one that is bound here.

    Raises:
        Invalid: it is another one; the message names the right one.
    """
    if not scope_id:
        return
    if scope is None:
        raise Invalid("scope_id needs scope: session, project, org or global")
    session = current_origin().session_id
    if scope is MemoryScope.SESSION and scope_id != session:
        raise Invalid(
            f"this connection's session is {session or 'none'}; resume another one with "
            "session_resume, or leave scope_id out"
        )
    scopes.levels(scope, scope_id=scope_id)


# A live entry wins over a deactivated one of the same name
def _versions(kind: MemoryKind, entry: NamedMemory) -> dict[str, Any]:
    if not entry.id:
        try:
            return find_entry(kind=kind, entry=entry, versions=True)
        except NotFound:
            pass
    return find_entry(kind=kind, entry=entry.model_copy(update={"include_deleted": True}), versions=True)


def _get(kind: MemoryKind, entry: NamedMemory, *, versions: bool) -> dict[str, Any]:
    fields = entry.model_dump(include={"scope", "include_deleted"})
    if entry.id:
        return get_memories(command=MemoryGet(ids=[entry.id], versions=versions, **fields))[0]
    if not entry.name:
        raise Invalid(f"give the id or the name of the {kind}")
    command = MemoryGet(name=entry.name, kind=kind, inherit=entry.inherit, versions=versions, **fields)
    try:
        return get_memories(command=command)[0]
    except NotFound as error:
        raise NotFound(f"there is no {kind} {entry.name[:200]!r} here; {kind}_list shows all") from error


def add_entry(*, command: MemoryWrite, scope_id: str = "") -> WriteResult:
    """Add a registry entry.

    Raises:
        Conflict: the name is taken in that scope; the data has the id.
        Invalid: as ``write_memory``, or ``scope_id`` is not bound here.
    """
    check_scope_id(command.scope, scope_id)
    with _acting(command.author):
        return write_memory(command=command)


def update_entry(*, kind: MemoryKind, entry: NamedMemory, changes: Mapping[str, Any], author: str = "") -> WriteResult:
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
    memory = find_entry(kind=kind, entry=entry)
    fields = {name: value for name, value in changes.items() if name != "author"}
    command = MemoryUpdate(**fields, id=memory["id"], scope=memory["scope"])
    with _acting(author):
        return update_memory(command=command)


def deactivate_entry(
    *, kind: MemoryKind, entry: NamedMemory, reason: str = "", author: str = "", idempotency_key: str | None = None
) -> WriteResult:
    """Soft-delete an entry: its name becomes free, its history stays.

    Raises:
        NotFound, Gone, Invalid: as ``find_entry``.
    """
    memory = find_entry(kind=kind, entry=entry.model_copy(update={"include_deleted": entry.id is not None}))
    command = MemoryDelete(id=memory["id"], scope=memory["scope"], reason=reason, idempotency_key=idempotency_key)
    with _acting(author):
        return delete_memory(command=command)


# For clients that act for several agents
def _acting(author: str) -> AbstractContextManager[object]:
    return use_origin(actor=author) if author else nullcontext()
