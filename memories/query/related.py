"""Resolve ``related_to``: an id or a name becomes the end of relations in one store."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from memories import scopes
from memories.inheritance import Place, places_of, positions_of, store_key
from memories.models import PROJECT, EndType, MemoryScope
from memories.schemas.query import RelatedTo, RelatedType
from memories.sql import LIVE, Sql
from memoryhub.core.entities import find_entities
from memoryhub.core.errors import Invalid, NotFound
from memoryhub.core.log.event_view import viewed_store
from memoryhub.core.stores import rows
from memoryhub.core.stores.store import current_store, use_store

_OTHER_ENDS = {
    RelatedType.DECISION: EndType.DECISION,
    RelatedType.COMMIT: EndType.COMMIT,
    RelatedType.SESSION: EndType.SESSION,
}
_REFERENCE = re.compile(rf"(?:({'|'.join(MemoryScope.values)}))?#?(\d{{1,15}})")


@dataclass(frozen=True, slots=True)
class End:
    # ``store_key`` of the store
    store: str
    # An ``EndType``
    type: str
    id: int


def resolve(related_to: RelatedTo) -> End:
    """Return the entity that the caller named.

    Raises:
        NotFound: there is no such entity here.
        Invalid: it is another project, or not an id.
    """
    here = store_key(current_store())
    if related_to.type is RelatedType.PROJECT:
        return End(here, EndType.PROJECT, _own_project(related_to.id))
    if related_to.type in _OTHER_ENDS:
        return End(here, _OTHER_ENDS[related_to.type], _other(related_to))
    levels = scopes.levels()
    return _memory(related_to, places_of(levels, positions_of(levels)))


def _own_project(project: str) -> int:
    own = viewed_store().name
    if project not in (own, str(PROJECT)):
        raise Invalid(f"related_to.id: this server is bound to project {own!r}; name that one, not {project[:80]!r}")
    return PROJECT


def _other(related_to: RelatedTo) -> int:
    reference = _REFERENCE.fullmatch(related_to.id)
    if not reference:
        raise Invalid(f"related_to.id of type {related_to.type} is its id, a number such as 412")
    wanted = int(reference[2])
    entity = find_entities([wanted]).get(wanted)
    if entity is None or entity.type != related_to.type:
        raise NotFound(f"there is no {related_to.type} #{wanted} here; memory_search finds its id", id=wanted)
    return wanted


def _memory(related_to: RelatedTo, places: list[Place]) -> End:
    found = _of_id(related_to, places) or _of_name(related_to, places)
    if found is None:
        what = related_to.type
        raise NotFound(f"there is no {what} {related_to.id[:200]!r} here; memory_search finds its id or title")
    return found


def _of_id(related_to: RelatedTo, places: list[Place]) -> End | None:
    reference = _REFERENCE.fullmatch(related_to.id)
    if not reference:
        return None
    own = [place for place in places if place.store == current_store()]
    named = [place for place in places if place.scope == reference[1]] if reference[1] else own
    return _first(named, related_to, Sql("m.id = %s", (int(reference[2]),)))


def _of_name(related_to: RelatedTo, places: list[Place]) -> End | None:
    return _first(places, related_to, Sql(f"m.title = %s AND {LIVE}", (related_to.id,)))


def _first(places: list[Place], related_to: RelatedTo, condition: Sql) -> End | None:
    kind = "" if related_to.type is RelatedType.MEMORY else related_to.type.value
    for place in places:
        holds = place.holds
        with use_store(place.store):
            found = rows.fetch(
                f"SELECT m.id FROM memories_memory m WHERE {condition.text} AND (%s = '' OR m.kind = %s) "
                f"AND {holds.text} ORDER BY m.updated_at DESC, m.id DESC LIMIT 1",
                [*condition.parameters, kind, kind, *holds.parameters],
            )
        if found:
            return End(store_key(place.store), EndType.MEMORY, found[0][0])
    return None


def tags_at(end: End, position: int) -> list[str]:
    """Return the tags that a memory of the current store had at a position; other entities have none."""
    if end.type != EndType.MEMORY:
        return []
    found = rows.fetch(
        "SELECT payload_json FROM raw_events WHERE position = (SELECT max(id) FROM memories_memoryversion "
        "WHERE memory_id = %s AND id <= %s)",
        [end.id, position],
    )
    payload = json.loads(found[0][0] or "{}") if found else {}
    return sorted(set(payload.get("tags", [])))


def related_ids(end: End, relation: str | None) -> Sql:
    """Return a query of the ids of all memories directly related to ``end``, in either direction."""
    kind = " AND relation = %s" if relation else ""
    parameters = (end.id, end.type, EndType.MEMORY.value, *([relation] if relation else []))
    text = (
        f"SELECT target_id FROM memories_relation WHERE source_id = %s AND source_type = %s AND target_type = %s{kind} "
        f"UNION SELECT source_id FROM memories_relation WHERE target_id = %s AND target_type = %s "
        f"AND source_type = %s{kind}"
    )
    return Sql(text, (*parameters, *parameters))
