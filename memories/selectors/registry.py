"""Registry entries: tools, guidelines and knowledge, by id or by nearest name."""

from __future__ import annotations

from typing import Any

from memories import scopes
from memories.models import MemoryKind, MemoryScope
from memories.present import entry_line, version_text
from memories.query import query
from memories.schemas import MemoryGet
from memories.schemas.query import MemoryQuery, QueryOrder, QueryScope, QueryTags
from memories.schemas.registry import EntryList, EntryRef
from memories.selectors.memories import get_memories
from memoryhub.core.errors import Invalid, NotFound
from memoryhub.core.kinds import KINDS
from memoryhub.core.origin import current_origin
from memoryhub.core.paging import decode_cursor, encode_cursor, page
from memoryhub.core.schemas import Listing, Paging


def find_entry(*, kind: MemoryKind, entry: EntryRef, versions: bool = False) -> dict[str, Any]:
    """Return the entry as JSON data.

    Raises:
        NotFound: there is no such entry, or the id belongs to another kind.
        Gone: it is deactivated, and ``include_deleted`` is off.
        Invalid: neither id nor name is given, or the scope is not bound here.
    """
    check_scope_id(entry.scope, entry.scope_id)
    found = _by_id(entry, versions=versions) if entry.id else _by_name(kind, entry, versions=versions)
    if found["kind"] != kind:
        raise NotFound(f"#{found['id']} is of kind {found['kind']}, not {kind}; memory_get reads it", id=found["id"])
    return found


def entry_history(*, kind: MemoryKind, entry: EntryRef, paging: Paging) -> Listing:
    """Return a page of versions, newest first; deactivated entries too.

    Raises:
        NotFound, Invalid: as ``find_entry``.
    """
    found = _versions(kind, entry)
    last = decode_cursor(paging.cursor, (int,))
    left = [version for version in found["versions"] if last is None or version["version"] < last[0]]
    shown = left[: paging.limit]
    entry_fields = {"id": found["id"], "title": found["title"], "scope": found["scope"]}
    return page(
        [{**entry_fields, **(_brief(version) if paging.compact else version)} for version in shown],
        total=len(found["versions"]),
        more=len(left) > len(shown),
        cursor_of=lambda version: encode_cursor(version["version"]),
        line=version_text,
        max_tokens=paging.max_tokens,
    )


def list_entries(*, kind: MemoryKind, command: EntryList) -> Listing:
    """Return a page of the visible entries, the nearest of each name, in the order of the kind.

    Raises:
        Invalid: the cursor is of another list, or the scope is not bound here.
    """
    check_scope_id(command.scope, command.scope_id)
    scope = command.scope or (None if command.inherit else scopes.own_scope())
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
def _versions(kind: MemoryKind, entry: EntryRef) -> dict[str, Any]:
    if not entry.id:
        try:
            return find_entry(kind=kind, entry=entry, versions=True)
        except NotFound:
            pass
    return find_entry(kind=kind, entry=entry.model_copy(update={"include_deleted": True}), versions=True)


def _brief(version: dict[str, Any]) -> dict[str, Any]:
    return {**version, "content": None, "diff": ""}


def _by_id(entry: EntryRef, *, versions: bool) -> dict[str, Any]:
    wanted = MemoryGet(ids=[entry.id or 0], scope=entry.scope, versions=versions, include_deleted=entry.include_deleted)
    return get_memories(command=wanted)[0]


def _by_name(kind: MemoryKind, entry: EntryRef, *, versions: bool) -> dict[str, Any]:
    if not entry.name:
        raise Invalid(f"give the id or the name of the {kind}")
    fields = entry.model_dump(include={"name", "scope", "inherit", "include_deleted"})
    try:
        return get_memories(command=MemoryGet(**fields, kind=kind, versions=versions))[0]
    except NotFound as error:
        raise NotFound(f"there is no {kind} {entry.name[:200]!r} here; {kind}_list shows all") from error
