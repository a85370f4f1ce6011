"""What has an id in a store: memories, sessions, commits and whatever else an app declares.

Ids are positions of the log, so that one id names one thing, and what it is follows from it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from memoryhub.core import rows


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


def define_entity(entity_type: str, sql: str) -> None:
    """Register a type of entity: ``sql`` selects ``id, title, kind, deleted`` of all those that are there."""
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
    return {each[1]: Entity(each[0], each[1], _first_line(each[2]), each[3], bool(each[4])) for each in found}


def _first_line(title: str) -> str:
    return title.strip().split("\n", 1)[0][:200]
