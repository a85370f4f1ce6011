"""Look up entities (memories, sessions, commits and others) by id. An id is a position of the log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from memoryhub.core.errors import Gone, HubError, NotFound
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS, TEXTS, json_list
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
    listed_ids = ", ".join(str(int(entity_id)) for entity_id in sorted(set(ids)))
    if not listed_ids:
        return {}
    arms = [f"{source} WHERE id IN ({listed_ids})" for source in _sources.values()]
    matches = sorted(rows.fetch(" UNION ALL ".join(arms)), key=lambda row: row[1])
    return {row[1]: Entity(row[0], row[1], first_line(row[2]), row[3], bool(row[4])) for row in matches}


def require_entities(entity_type: str, ids: Sequence[int]) -> list[Entity]:
    """Return the entities with these ids, in order; NotFound unless all are of type ``wanted``."""
    entities = find_entities(ids)
    if any(entity_id not in entities or entities[entity_id].type != entity_type for entity_id in ids):
        raise not_found(entity_type, ids)
    return [entities[entity_id] for entity_id in ids]


def not_found(entity_type: str, ids: Sequence[int], **data: Any) -> HubError:
    """Return the error for ids of which some are not of the type: Gone where one was permanently erased."""
    entities = find_entities(ids)
    mistyped = [entity for entity in entities.values() if entity.type != entity_type]
    if mistyped:
        hint = "#{0.id} is a {0.type}, not a {1}; {2} shows it"
        hints = [hint.format(entity, entity_type, _shown_by[entity.type]) for entity in mistyped]
        return NotFound("; ".join(hints), **(data or {"ids": [entity.id for entity in mistyped]}))
    missing = [entity_id for entity_id in ids if entity_id not in entities]
    streams = [f"{entity_type}:{entity_id}" for entity_id in missing]
    erased = [position for (position,) in rows.fetch(_ERASED, [json_list(missing), json_list(streams)])]
    listed = ", ".join(f"#{entity_id}" for entity_id in erased or missing)
    data = data or {"ids": erased or missing}
    if erased:
        return Gone(f"{entity_type} {listed} was permanently erased; it cannot be restored", **data)
    return NotFound(f"there is no {entity_type} {listed} here; search or list to find its id", **data)
