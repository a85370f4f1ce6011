"""References to entities: ``412``, ``#412``, ``org#412`` or ``project``."""

from __future__ import annotations

import re

from memories.models import PROJECT, EndType, MemoryScope
from memories.schemas.links import EndView, EntryType
from memories.scopes import own_scope
from memoryhub.core.entities import Entity, entity_types, find_entities
from memoryhub.core.errors import Gone, Invalid, NotFound
from memoryhub.core.log.views import viewed_store

_ID = re.compile(r"(session|project|org|global)?#?([0-9]{1,16})")


def end_id(field: str, text: str, entry_type: EntryType | None = None) -> int:
    """Return the id that ``given`` names in the current store; 0 is the project, or the store's organisation.

    Args:
        field: the caller's name of the argument, for errors.
        text: what the caller passed.
        entry_type: the type that the caller claims.

    Raises:
        Invalid: it is not a reference, or names an entity of another store.
    """
    if entry_type is EntryType.PROJECT:
        store = viewed_store().name
        if text in (str(PROJECT), own_scope(), store):
            return PROJECT
        raise Invalid(f"{field!r} names {text[:80]!r}, and this is {own_scope()} {store!r}; links cannot cross stores")
    if text == own_scope():
        return PROJECT
    match = _ID.fullmatch(text)
    if not match and text in (MemoryScope.PROJECT, MemoryScope.ORG, MemoryScope.GLOBAL):
        _refuse_scope(field, text, text)
    if not match:
        raise Invalid(f"{field!r} must be an id such as 412, or {own_scope()}, not {text[:80]!r}")
    scope = MemoryScope.PROJECT if match[1] == MemoryScope.SESSION else match[1]
    if scope and scope != own_scope():
        _refuse_scope(field, text, match[1])
    return int(match[2])


def _refuse_scope(field: str, text: str, scope: str) -> None:
    raise Invalid(
        f"{field!r} {text!r} is of scope {scope}, but this call is for scope {own_scope()}; links cannot cross "
        f"stores: pass scope={scope} where both ends are there, or write a memory of it here first"
    )


def require_ends(*named: tuple[str, int, EntryType | None], include_deleted: bool = False) -> list[Entity]:
    """Return the entities of the ids; each is given with the caller's argument name and the type it should have.

    Raises:
        NotFound: there is no such entity.
        Gone: it is deleted, and ``include_deleted`` is off.
        Invalid: it has another type.
    """
    entities = find_entities([entity_id for _, entity_id, _ in named])
    ends = [_checked(field, entity_id, claimed, entities.get(entity_id)) for field, entity_id, claimed in named]
    for (field, entity_id, _), end in zip(named, ends, strict=True):
        if end.deleted and not include_deleted:
            raise Gone(f"{field!r}: {end.type} #{entity_id} is deleted; restore it first", id=entity_id)
    return ends


def _checked(field: str, entity_id: int, claimed: EntryType | None, entity: Entity | None) -> Entity:
    if entity is None:
        *most, last = [name for name in entity_types() if name != EndType.PROJECT]
        raise NotFound(
            f"{field!r}: there is no {', '.join(most)} or {last} #{entity_id} here; search or list to find its id",
            id=entity_id,
        )
    if claimed and claimed not in (entity.type, entity.kind):
        raise Invalid(
            f"{field!r}: #{entity_id} is {entity.kind or entity.type}, not {claimed}; leave the type out, "
            "the id is enough"
        )
    return entity


def view_end(entity: Entity) -> EndView:
    title = entity.title
    if entity.id == PROJECT and not title:
        title = viewed_store().name
    return EndView(type=EndType(entity.type), kind=entity.kind, id=entity.id, title=title, deleted=entity.deleted)
