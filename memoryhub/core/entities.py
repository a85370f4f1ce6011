"""Look up entities (memories, sessions, commits and others) by id. An id is a position of the log."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from memoryhub.core.errors import Gone, HubError, NotFound
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS, TEXTS
from memoryhub.core.text import first_line


@dataclass(frozen=True, slots=True)
class Entity:
    type: str
    id: int
    title: str
    # Subtype within its type; empty if there is none.
    kind: str = ""
    deleted: bool = False


_sources: dict[str, str] = {}
_shown_by: dict[str, str] = {}


_ERASED = (
    f"SELECT position FROM raw_events WHERE position IN {IDS} AND stream_id IN {TEXTS} AND payload_json IS NULL "
    "ORDER BY position"
)


def define_entity(entity_type: str, sql: str, *, shown_by: str = "memory_search") -> None:
    """Register an entity type. ``sql`` selects ``id, title, kind, deleted``; ``shown_by`` is a tool."""
    _shown_by[entity_type] = shown_by
    _sources[entity_type] = f"SELECT '{entity_type}', id, title, kind, deleted FROM ({sql}) AS e"


def entity_types() -> list[str]:
    return list(_sources)


def find_entities(ids: Iterable[int]) -> dict[int, Entity]:
    """Return the entities with these ids, including deleted ones, in one query; in the order of their ids."""
    wanted = ", ".join(str(int(entity_id)) for entity_id in sorted(set(ids)))
    if not wanted:
        return {}
    arms = [f"{source} WHERE id IN ({wanted})" for source in _sources.values()]
    found = sorted(rows.fetch(" UNION ALL ".join(arms)), key=lambda row: row[1])
    return {row[1]: Entity(row[0], row[1], first_line(row[2]), row[3], bool(row[4])) for row in found}


def require_entities(wanted: str, ids: Sequence[int]) -> list[Entity]:
    """Return the entities with these ids, in order; NotFound unless all are of type ``wanted``."""
    found = find_entities(ids)
    if any(entity_id not in found or found[entity_id].type != wanted for entity_id in ids):
        raise not_found(wanted, ids)
    return [found[entity_id] for entity_id in ids]


def not_found(wanted: str, ids: Sequence[int], **data: Any) -> HubError:
    """Return the error for ids of which some are not of type ``wanted``: Gone where one was permanently erased."""
    found = find_entities(ids)
    others = [entity for entity in found.values() if entity.type != wanted]
    if others:
        hints = [
            f"#{entity.id} is a {entity.type}, not a {wanted}; {_shown_by[entity.type]} shows it" for entity in others
        ]
        return NotFound("; ".join(hints), **(data or {"ids": [entity.id for entity in others]}))
    missing = [entity_id for entity_id in ids if entity_id not in found]
    erased = rows.fetch(_ERASED, [json.dumps(missing), json.dumps([f"{wanted}:{entity_id}" for entity_id in missing])])
    if erased:
        listed = ", ".join(f"#{entity_id}" for (entity_id,) in erased)
        gone = data or {"ids": [entity_id for (entity_id,) in erased]}
        return Gone(f"{wanted} {listed} was permanently erased; it cannot be restored", **gone)
    listed = ", ".join(f"#{entity_id}" for entity_id in missing)
    return NotFound(f"there is no {wanted} {listed} here; search or list to find its id", **(data or {"ids": missing}))
