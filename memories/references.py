"""How things are named: ``412``, ``#412``, ``org#412`` or ``project``; and what that is in the current store."""

from __future__ import annotations

import re
from typing import Any

from memories.models import PROJECT, EndType, MemoryScope
from memories.schemas.links import EndView, EntryType
from memories.scopes import own_scope
from memoryhub.core.entities import Entity, entity_types, find_entities
from memoryhub.core.errors import Gone, Invalid, NotFound
from memoryhub.core.log.event_view import viewed_store

_ID = re.compile(r"(session|project|org|global)?#?([0-9]{1,16})")


def reference(item: dict[str, Any]) -> str:
    """Return how an item is named: ``#412``, with its scope before it where that is not the project."""
    scope = item.get("scope", MemoryScope.PROJECT)
    return f"#{item['id']}" if scope == MemoryScope.PROJECT else f"{scope}#{item['id']}"


def proposed_text(accepted_version: int | None) -> str:
    """Return what is said of a memory that waits for a person: that it does, and which version holds until then."""
    return f"proposed; v{accepted_version} holds" if accepted_version else "proposed"


def end_id(field: str, given: str, entry_type: EntryType | None = None) -> int:
    """Return the id that ``given`` names in the current store; 0 is the project, or whatever the store is for.

    Args:
        field: the caller's name for it, for errors.
        given: what the caller wrote.
        entry_type: what the caller says that it is.

    Raises:
        Invalid: it is no reference, or names something of another store.
    """
    if entry_type is EntryType.PROJECT:
        return _store_itself(field, given)
    if given == own_scope():
        return PROJECT
    found = _ID.fullmatch(given)
    if not found and given in (MemoryScope.PROJECT, MemoryScope.ORG, MemoryScope.GLOBAL):
        _refuse_scope(field, given, given)
    if not found:
        raise Invalid(f"{field!r} must be an id such as 412, or {own_scope()}, not {given[:80]!r}")
    scope = MemoryScope.PROJECT if found[1] == MemoryScope.SESSION else found[1]
    if scope and scope != own_scope():
        _refuse_scope(field, given, found[1])
    return int(found[2])


def _store_itself(field: str, given: str) -> int:
    known = viewed_store().name
    if given not in (str(PROJECT), own_scope(), known):
        raise Invalid(
            f"{field!r} names {given[:80]!r}, and this is {own_scope()} {known!r}; links hold within one store"
        )
    return PROJECT


def _refuse_scope(field: str, given: str, scope: str) -> None:
    raise Invalid(
        f"{field!r} {given!r} is of scope {scope}, and this call is made in scope {own_scope()}; links hold within one "
        f"store: pass scope={scope} where both ends are there, or write a memory of it here first"
    )


def require_ends(*named: tuple[str, int, EntryType | None], include_deleted: bool = False) -> list[Entity]:
    """Return what the ids name, each given with the caller's name for it and for what it should be.

    Raises:
        NotFound: there is nothing of that id that can be an end.
        Gone: it is deleted, and ``include_deleted`` is off.
        Invalid: it is not what the caller says.
    """
    found = find_entities([wanted for _, wanted, _ in named])
    ends = [_checked(field, wanted, said, found.get(wanted)) for field, wanted, said in named]
    for (field, wanted, _), end in zip(named, ends, strict=True):
        if end.deleted and not include_deleted:
            raise Gone(f"{field!r}: {end.type} #{wanted} is deleted; restore it first", id=wanted)
    return ends


def _checked(field: str, wanted: int, said: EntryType | None, found: Entity | None) -> Entity:
    if found is None:
        *most, last = [each for each in entity_types() if each != EndType.PROJECT]
        raise NotFound(
            f"{field!r}: there is no {', '.join(most)} or {last} #{wanted} here; search or list to find its id",
            id=wanted,
        )
    if said and said not in (found.type, found.kind):
        raise Invalid(
            f"{field!r}: #{wanted} is {found.kind or found.type}, not {said}; its id alone says what it is, so "
            "leave its type out"
        )
    return found


def view_end(entity: Entity) -> EndView:
    """Return an end as every door shows it."""
    title = viewed_store().name if entity.id == PROJECT and not entity.title else entity.title
    return EndView(type=EndType(entity.type), kind=entity.kind, id=entity.id, title=title, deleted=entity.deleted)
