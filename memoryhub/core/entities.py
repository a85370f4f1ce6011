"""What has an id in a store: memories, sessions, commits and whatever else an app declares.

Ids are positions of the log, so that one id names one thing, and what it is follows from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from memoryhub.core.errors import NotFound
from memoryhub.core.stores import rows
from memoryhub.core.text import first_line


@dataclass(frozen=True, slots=True)
class Entity:
    """One thing of a store."""

    type: str
    id: int
    title: str
    kind: str = ""
    """What it is within its type; empty where all of its type are alike."""
    deleted: bool = False


_sources: dict[str, str] = {}
_shown_by: dict[str, str] = {}


def define_entity(entity_type: str, sql: str, *, shown_by: str = "memory_search") -> None:
    """Register a type of entity.

    Args:
        entity_type: what callers name it.
        sql: selects ``id, title, kind, deleted`` of all those that are there.
        shown_by: the tool that shows one.
    """
    _shown_by[entity_type] = shown_by
    _sources[entity_type] = f"SELECT '{entity_type}', id, title, kind, deleted FROM ({sql})"


def entity_types() -> list[str]:
    """Return the names of all types, in order of their registration."""
    return list(_sources)


def find_entities(ids: Iterable[int]) -> dict[int, Entity]:
    """Return the entities of these ids in the current store, deleted ones too, by one statement.

    An id that names none is not in the answer.
    """
    wanted = ", ".join(str(int(each)) for each in sorted(set(ids)))
    if not wanted:
        return {}
    arms = [f"{source} WHERE id IN ({wanted})" for source in _sources.values()]
    found = rows.fetch(" UNION ALL ".join(arms))
    return {each[1]: Entity(each[0], each[1], first_line(each[2]), each[3], bool(each[4])) for each in found}


def require_entities(wanted: str, ids: Sequence[int]) -> list[Entity]:
    """Return the entities of these ids, in their order, all of the type ``wanted``.

    Raises:
        NotFound: one of them is not there, or is something else; the message says what.
    """
    found = find_entities(ids)
    if any(each not in found or found[each].type != wanted for each in ids):
        raise not_found(wanted, ids)
    return [found[each] for each in ids]


def not_found(wanted: str, ids: Sequence[int], **data: Any) -> NotFound:
    """Return the error that some of these ids are no ``wanted``: what they are instead, or that nothing has them."""
    found = find_entities(ids)
    others = [each for each in found.values() if each.type != wanted]
    if others:
        said = [f"#{each.id} is a {each.type}, not a {wanted}; {_shown_by[each.type]} shows it" for each in others]
        return NotFound("; ".join(said), **(data or {"ids": [each.id for each in others]}))
    missing = [each for each in ids if each not in found]
    listed = ", ".join(f"#{each}" for each in missing)
    return NotFound(f"there is no {wanted} {listed} here; search or list to find its id", **(data or {"ids": missing}))
