"""Describe and attach tags, and relate entities."""

from __future__ import annotations

import json
from collections.abc import Sequence

from memories import scopes
from memories.events import (
    RELATION_CREATED,
    RELATION_DELETED,
    TAG_CREATED,
    RelationCreated,
    RelationDeleted,
    TagCreated,
    filled,
)
from memories.models import ACYCLIC, PROJECT, EndType, Relation, RelationType, Tag
from memories.references import end_id, require_ends, view_end
from memories.schemas import MemoryUpdate, WriteStatus
from memories.schemas.links import (
    PREDEFINED,
    LinkStatus,
    RelationCreate,
    RelationDelete,
    RelationResult,
    TagAttach,
    TagCreate,
    TagDetach,
    TagResult,
    TagsChanged,
)
from memories.selectors.memories import tag_names, view_tags
from memories.selectors.relations import find_relation, path_between, same_relation, view_relations
from memories.services.revise import live_memory, update_memory
from memoryhub.core import clock, log
from memoryhub.core.errors import ConflictError, Gone, Invalid, NotFound
from memoryhub.core.text import flat
from sessions_app.events import PROJECT_DESCRIBED
from sessions_app.schemas import OrgDescribe
from sessions_app.selectors import profile
from sessions_app.services.profile import describe

MAX_ON_MEMORY = 32
MAX_ON_PROJECT = 50


def create_tag(*, command: TagCreate) -> TagResult:
    """Describe a new tag; a tag that is only used so far can be described.

    Raises:
        ConflictError: it is predefined or described already.
    """
    payload = TagCreated(name=command.name, category=command.category, description=command.description)
    draft = log.prepare(TAG_CREATED, payload)
    with scopes.writing(command.scope), log.transaction():
        first = log.find_by_key(command.idempotency_key, TAG_CREATED)
        if first:
            return _described(first.position, draft.redactions)
        name = draft.payload.name
        if name in PREDEFINED:
            raise ConflictError(
                f"tag {name!r} is predefined in category {PREDEFINED[name]}; use it as it is, or describe another name"
            )
        tag = Tag.objects.filter(name=name).first()
        if tag:
            raise ConflictError(
                f"tag {name!r} is described already in category {tag.category}; use it as it is, or describe another "
                "name",
                id=tag.id,
            )
        event = log.append(draft, entity="tag", idempotency_key=command.idempotency_key)
        return _described(event.position, draft.redactions)


def _described(tag_id: int, redactions: Sequence[str]) -> TagResult:
    tags = [tag for tag in view_tags() if tag.id == tag_id]
    if not tags:
        raise Gone(
            f"the description of tag #{tag_id} was erased; create it again under a new idempotency_key", id=tag_id
        )
    return TagResult(**tags[0].model_dump(), redacted=list(redactions))


def attach_tags(*, command: TagAttach) -> TagsChanged:
    """Add tags to a memory, as a new version, or to the project.

    Raises:
        NotFound: there is no such memory or tag id.
        Gone: the memory is deleted.
        Invalid: there would be too many tags, or the reference names an entity of another store.
    """
    return _retag(command, "attached")


def detach_tags(*, command: TagDetach) -> TagsChanged:
    """Remove tags from a memory, as a new version, or from the project.

    Raises:
        NotFound, Gone, Invalid: as ``attach_tags``.
    """
    return _retag(command, "detached")


def _retag(command: TagAttach, verb: str) -> TagsChanged:
    with scopes.writing(command.scope), log.transaction():
        target = end_id("id", command.id, command.entry_type)
        names = tag_names(command.tags)
        if target == PROJECT:
            return _retag_project(names, command, verb)
        if command.entry_type:
            require_ends(("id", target, command.entry_type))
        return _retag_memory(target, names, command, verb)


def _retag_memory(memory_id: int, names: list[str], command: TagAttach, verb: str) -> TagsChanged:
    # Older versions of the hub accepted tags with line breaks
    before = [flat(tag) for tag in live_memory(memory_id).tags]
    changed = _changed(before, names, verb)
    result = update_memory(
        command=MemoryUpdate(
            id=memory_id,
            scope=command.scope,
            tags=_after(before, changed, verb, MAX_ON_MEMORY),
            change_reason=f"tags {verb}: {', '.join(changed)}"[:1_000],
            idempotency_key=command.idempotency_key,
        )
    )
    if not changed and result.status is not WriteStatus.UNCHANGED:
        changed = names  # a repeated call
    return TagsChanged(
        type=EndType.MEMORY,
        changed=changed,
        tags=live_memory(memory_id).tags,
        **result.model_dump(include={"id", "title", "scope", "version", "status", "redacted"}),
    )


def _retag_project(names: list[str], command: TagAttach, verb: str) -> TagsChanged:
    before = [flat(tag) for tag in profile().tags]
    is_repeated = log.find_by_key(command.idempotency_key, PROJECT_DESCRIBED)
    changed = names if is_repeated else _changed(before, names, verb)
    redacted: tuple[str, ...] = ()
    if changed and not is_repeated:
        tags = _after(before, changed, verb, MAX_ON_PROJECT)
        redacted = describe(command=OrgDescribe(tags=tags, idempotency_key=command.idempotency_key)).redacted
    (end,) = require_ends(("id", PROJECT, None))
    return TagsChanged(
        **view_end(end).model_dump(include={"id", "type", "title"}),
        scope=scopes.own_scope(),
        version=None,
        status=WriteStatus.UPDATED if changed else WriteStatus.UNCHANGED,
        changed=changed,
        tags=profile().tags,
        redacted=list(redacted),
    )


def _changed(before: list[str], names: list[str], verb: str) -> list[str]:
    return [name for name in names if (name in before) == (verb == "detached")]


def _after(before: list[str], changed: list[str], verb: str, most: int) -> list[str]:
    if verb == "detached":
        return [name for name in before if name not in changed]
    after = [*before, *changed]
    if len(after) > most:
        raise Invalid(f"'tags': {len(after)} tags are too many, the limit is {most}; detach some first")
    return after


def create_relation(*, command: RelationCreate) -> RelationResult:
    """Relate two entities of one store; an equal relation is kept.

    Raises:
        NotFound: one of the entities does not exist.
        Gone: one of them is deleted.
        Invalid: both are the same, one is of another store, or has another type than claimed.
        ConflictError: it would create a cycle of depends_on, supersedes or derived_from; the data has the path.
    """
    with scopes.writing(command.scope), log.transaction():
        first = log.find_by_key(command.idempotency_key, RELATION_CREATED)
        if first:
            return _earlier_result(first)
        source_id = end_id("source", command.source, command.source_type)
        target_id = end_id("target", command.target, command.target_type)
        if source_id == target_id:
            raise Invalid("'source' and 'target' are the same; a relation needs two entities")
        ends = require_ends(("source", source_id, command.source_type), ("target", target_id, command.target_type))
        same = same_relation(command.relation, source_id, target_id)
        if same:
            return _result(same, LinkStatus.KEPT)
        _refuse_cycle(command.relation, source_id, target_id)
        payload = RelationCreated(
            **filled(author=command.author),
            relation=command.relation,
            source_type=EndType(ends[0].type),
            source_id=source_id,
            target_type=EndType(ends[1].type),
            target_id=target_id,
        )
        draft = log.prepare(RELATION_CREATED, payload)
        event = log.append(draft, entity="relation", idempotency_key=command.idempotency_key)
        return _result(find_relation(event.position), LinkStatus.CREATED)


def _earlier_result(event: log.StoredEvent) -> RelationResult:
    relation = Relation.objects.filter(id=event.position).first()
    if relation is None:
        raise Gone(
            f"relation #{event.position} was created by this call before and is deleted since", id=event.position
        )
    return _result(relation, LinkStatus.CREATED)


def _refuse_cycle(relation: RelationType, source: int, target: int) -> None:
    path = path_between(relation, target, source) if relation in ACYCLIC else []
    if path:
        way = f" {relation} ".join(f"#{entity}" for entity in path)
        raise ConflictError(
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
            relation_id = int(first.stream_id.removeprefix("relation:"))
            event = log.events().get(position=relation_id)  # created it
            created = Relation(
                id=relation_id,
                actor=event.actor,
                session_id=event.session_id,
                created_at=clock.from_text(event.occurred_at),
                **json.loads(event.payload_json or "{}"),
            )
            return _result(created, LinkStatus.DELETED)
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
    relation = same_relation(command.relation, source, target)
    if relation is None:
        raise NotFound(f"there is no relation #{source} {command.relation} #{target} here; relation_list shows them")
    return relation


def _result(relation: Relation, status: LinkStatus) -> RelationResult:
    (view,) = view_relations([relation])
    return RelationResult(**view, status=status)
