"""Relations between memories, decisions, commits, sessions and the project."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from django.db.models import Exists, OuterRef, Q, QuerySet

from memories import scopes
from memories.models import SYMMETRIC, EndType, Memory, Relation, RelationType
from memories.present import relation_line
from memories.references import end_id, require_ends, view_end
from memories.schemas.links import Direction, RelationList, RelationView
from memoryhub.core.entities import Entity, find_entities
from memoryhub.core.errors import NotFound
from memoryhub.core.log.quarantine import outside_quarantine
from memoryhub.core.paging import newest_first
from memoryhub.core.schemas import Listing
from memoryhub.core.search import retrieval
from memoryhub.core.stores import rows
from memoryhub.core.stores.store import Scope, current_store

# UNION instead of UNION ALL: each edge once, so that it ends on any graph
_WALK = """
WITH RECURSIVE walk(id, came_from) AS (
    SELECT target_id, source_id FROM memories_relation WHERE source_id = %s AND relation = %s
    UNION
    SELECT next.target_id, next.source_id FROM walk JOIN memories_relation AS next
        ON next.source_id = walk.id AND next.relation = %s
)
SELECT id, came_from FROM walk
"""


def find_relation(relation_id: int) -> Relation:
    """Return the relation.

    Raises:
        NotFound: there is no such relation.
    """
    match: Relation | None = Relation.objects.filter(id=relation_id).first()
    if match is None:
        raise NotFound(f"there is no relation #{relation_id} here; relation_list shows those there are", id=relation_id)
    return match


def same_relation(relation: RelationType, source: int, target: int) -> Relation | None:
    """Return an equal relation, or None."""
    ends = Q(source_id=source, target_id=target)
    if relation in SYMMETRIC:
        ends |= Q(source_id=target, target_id=source)
    match: Relation | None = Relation.objects.filter(ends, relation=relation).order_by("id").first()
    return match


def path_between(relation: RelationType, start: int, end: int) -> list[int]:
    """Return a shortest path from ``start`` to ``end`` along one type of relation; [] if there is none."""
    came_from: dict[int, int] = {}
    for reached, previous in rows.fetch(_WALK, [start, relation, relation]):
        came_from.setdefault(reached, previous)
    if end not in came_from:
        return []
    path = [end]
    while path[-1] != start:
        path.append(came_from[path[-1]])
    return path[::-1]


def list_relations(*, command: RelationList) -> Listing:
    """Return a page of relations, newest first; those of deleted memories only if asked for.

    Raises:
        NotFound: there is no entity of a given id.
        Gone: it is deleted, and ``include_deleted`` is off.
        Invalid: a reference names an entity of another store, or of another type.
    """
    with retrieval("list", command), scopes.reading(command.scope):
        views: Callable[[Sequence[Relation]], Iterable[dict[str, Any]]] = view_relations
        if command.compact:
            views = _compact_relations
        return newest_first(_matching(command), command, views, relation_line)


def _compact_relations(relations: Sequence[Relation]) -> Iterator[dict[str, Any]]:
    for item in view_relations(relations):
        ends = {name: {"type": item[name]["type"], "id": item[name]["id"]} for name in ("source", "target")}
        yield {"id": item["id"], "relation": item["relation"], "scope": item["scope"], **ends}


def _matching(command: RelationList) -> QuerySet[Relation]:
    matching = with_ends(include_deleted=command.include_deleted)
    if command.relation:
        matching = matching.filter(relation=command.relation)
    arguments = (
        ("id", command.id, command.entry_type),
        ("source", command.source, command.source_type),
        ("target", command.target, command.target_type),
    )
    ends = [(name, end_id(name, text, claimed), claimed) for name, text, claimed in arguments if text is not None]
    require_ends(*ends, include_deleted=command.include_deleted)
    for name, end, _ in ends:
        matching = matching.filter(_at(name, end, command.direction))
    return matching


def _at(field: str, end: int, direction: Direction) -> Q:
    if field == "source" or (field == "id" and direction is Direction.OUT):
        return Q(source_id=end)
    if field == "target" or direction is Direction.IN:
        return Q(target_id=end)
    return Q(source_id=end) | Q(target_id=end)


def with_ends(*, include_deleted: bool = False) -> QuerySet[Relation]:
    """Return the relations whose ends exist; deleted memories count as missing unless ``include_deleted``.

    Ends in quarantine always count as missing.
    """
    relations: QuerySet[Relation] = outside_quarantine(
        outside_quarantine(Relation.objects.all(), "source_id"), "target_id"
    )
    if not include_deleted:
        deleted = Memory.objects.filter(deleted_at__isnull=False).values("id")
        relations = relations.exclude(source_id__in=deleted).exclude(target_id__in=deleted)
    # Views of the past have relations of memories that were erased later
    if current_store().scope is not Scope.VIEW:
        return relations
    for end in ("source", "target"):
        memory = Memory.objects.filter(id=OuterRef(f"{end}_id"))
        relations = relations.exclude(Q(**{f"{end}_type": EndType.MEMORY}) & ~Exists(memory))
    return relations


def view_relations(relations: Sequence[Relation]) -> list[dict[str, Any]]:
    """Return relations as JSON data; all ends are looked up with one statement."""
    ends = find_entities(end for relation in relations for end in (relation.source_id, relation.target_id))
    scope = scopes.own_scope()
    viewed = []
    for relation in relations:
        viewed.append(
            RelationView(
                id=relation.id,
                relation=RelationType(relation.relation),
                source=view_end(ends.get(relation.source_id) or _missing(relation.source_type, relation.source_id)),
                target=view_end(ends.get(relation.target_id) or _missing(relation.target_type, relation.target_id)),
                scope=scope,
                actor=relation.actor,
                session_id=relation.session_id,
                created_at=relation.created_at,
            ).model_dump(mode="json")
        )
    return viewed


def _missing(end_type: str, end: int) -> Entity:
    return Entity(end_type, end, "", deleted=True)


def relations_of(memory_ids: Sequence[int]) -> dict[int, list[dict[str, Any]]]:
    """Return the relations of each memory, oldest first, without those whose other end is deleted."""
    touching = with_ends(include_deleted=True).filter(Q(source_id__in=memory_ids) | Q(target_id__in=memory_ids))
    grouped: dict[int, list[dict[str, Any]]] = {memory_id: [] for memory_id in memory_ids}
    for relation in view_relations(list(touching.order_by("id"))):
        for near, far in (("source", "target"), ("target", "source")):
            if relation[near]["id"] in grouped and not relation[far]["deleted"]:
                grouped[relation[near]["id"]].append(relation)
    return grouped
