from __future__ import annotations

import json

from memories import scopes
from memories.events import RELATION_CREATED, RELATION_DELETED, RelationCreated, RelationDeleted
from memories.models import EndType, Relation, RelationType
from memories.models.link import ACYCLIC
from memories.references import end_id, require_ends
from memories.schemas.links import LinkStatus, RelationCreate, RelationDelete, RelationResult
from memories.selectors.relations import find_relation, path_between, same_relation, view_relations
from memoryhub.core import clock, log
from memoryhub.core.entities import Entity
from memoryhub.core.errors import Conflict, Gone, Invalid, NotFound
from memoryhub.core.models import RawEvent


def create_relation(*, command: RelationCreate) -> RelationResult:
    """Relate two entities of one store; an equal relation is kept.

    Raises:
        NotFound: one of the entities does not exist.
        Gone: one of them is deleted.
        Invalid: both are the same, one is of another store, or has another type than claimed.
        Conflict: it would create a cycle of depends_on, supersedes or derived_from; the data has the path.
    """
    with scopes.writing(command.scope), log.transaction():
        first = log.find_by_key(command.idempotency_key, RELATION_CREATED)
        if first:
            return _earlier_result(first)
        source, target = _ends(command)
        same = same_relation(command.relation, source.id, target.id)
        if same:
            return _result(same, LinkStatus.KEPT)
        _refuse_cycle(command.relation, source.id, target.id)
        draft = log.prepare(RELATION_CREATED, _payload(command.relation, source, target, command.author))
        event = log.append(draft, entity="relation", idempotency_key=command.idempotency_key)
        return _result(find_relation(event.position), LinkStatus.CREATED)


def _ends(command: RelationCreate) -> list[Entity]:
    source = end_id("source", command.source, command.source_type)
    target = end_id("target", command.target, command.target_type)
    if source == target:
        raise Invalid("'source' and 'target' are the same; a relation needs two entities")
    return require_ends(("source", source, command.source_type), ("target", target, command.target_type))


def _payload(relation: RelationType, source: Entity, target: Entity, author: str) -> RelationCreated:
    return RelationCreated(
        **({"author": author} if author else {}),
        relation=relation,
        source_type=EndType(source.type),
        source_id=source.id,
        target_type=EndType(target.type),
        target_id=target.id,
    )


def _refuse_cycle(relation: RelationType, source: int, target: int) -> None:
    path = path_between(relation, target, source) if relation in ACYCLIC else []
    if path:
        way = f" {relation} ".join(f"#{entity}" for entity in path)
        raise Conflict(
            f"#{source} {relation} #{target} would create a cycle, since {way}; delete one of those relations "
            "first, or use related_to",
            path=path,
        )


def delete_relation(*, command: RelationDelete) -> RelationResult:
    """Delete a relation and return it.

    Raises:
        NotFound: there is no such relation.
        Invalid: neither its id nor source, relation and target are given.
    """
    with scopes.writing(command.scope), log.transaction():
        first = log.find_by_key(command.idempotency_key, RELATION_DELETED)
        if first:
            return _result(_as_made(_relation_id(first)), LinkStatus.DELETED)
        relation = _find(command)
        result = _result(relation, LinkStatus.DELETED)
        draft = log.prepare(RELATION_DELETED, RelationDeleted(relation_id=relation.id, reason=command.reason))
        log.append(draft, stream=f"relation:{relation.id}", idempotency_key=command.idempotency_key)
        return result


def _find(command: RelationDelete) -> Relation:
    if command.id is not None:
        return find_relation(command.id)
    if command.source is None or command.relation is None or command.target is None:
        raise Invalid("give the relation's id, or source, relation and target; relation_list shows them")
    source = end_id("source", command.source, command.source_type)
    target = end_id("target", command.target, command.target_type)
    found = same_relation(command.relation, source, target)
    if found is None:
        raise NotFound(f"there is no relation #{source} {command.relation} #{target} here; relation_list shows them")
    return found


def _result(relation: Relation, status: LinkStatus) -> RelationResult:
    (view,) = view_relations([relation])
    return RelationResult(**view, status=status)


def _earlier_result(event: RawEvent) -> RelationResult:
    relation = Relation.objects.filter(id=event.position).first()
    if relation is None:
        raise Gone(
            f"relation #{event.position} was created by this call before and is deleted since", id=event.position
        )
    return _result(relation, LinkStatus.CREATED)


# A deleted relation, from the event that created it
def _as_made(relation_id: int) -> Relation:
    event = RawEvent.objects.get(position=relation_id)
    return Relation(
        id=relation_id,
        actor=event.actor,
        session_id=event.session_id,
        created_at=clock.from_text(event.occurred_at),
        **json.loads(event.payload_json or "{}"),
    )


def _relation_id(event: RawEvent) -> int:
    return int(event.stream_id.removeprefix("relation:"))
