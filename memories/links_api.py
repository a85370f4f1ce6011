"""REST routes of tags, relations and reviews."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router, Status

from memories.review import selectors, services
from memories.review.schemas import ReviewList, ReviewResult, ReviewVerdict
from memories.schemas.links import (
    LinkStatus,
    RelationCreate,
    RelationDelete,
    RelationList,
    RelationResult,
    TagAttach,
    TagCreate,
    TagDetach,
    TagList,
    TagResult,
    TagsChanged,
)
from memories.selectors.memories import list_tags
from memories.selectors.relations import list_relations
from memories.services import links
from memoryhub.core.rest import command_of, entity_tag, problems, without
from memoryhub.core.schemas import EntityId, Listing

router = Router()

AttachBody = without(TagAttach, "id", "entry_type")
DetachBody = without(TagDetach, "id", "entry_type")
DeleteBody = without(RelationDelete, "id", "source", "relation", "target", "source_type", "target_type")


@router.get("tags", response=Listing, tags=["tags"], summary="List tags by name")
def show_tags(request: HttpRequest, command: Query[TagList]) -> Any:
    """Predefined, described and used tags, each with its number of memories."""
    return list_tags(command=command)


@router.post("tags", response={201: TagResult, **problems(409, 410)}, tags=["tags"], summary="Describe a tag")
def create_tag(request: HttpRequest, command: TagCreate) -> Any:
    """409 if it is predefined or already described."""
    return Status(201, links.create_tag(command=command))


@router.post(
    "memories/{memory_id}/tags",
    response={200: TagsChanged, **problems(409, 410)},
    tags=["tags"],
    summary="Attach tags to a memory",
)
def attach_tags(
    request: HttpRequest,
    memory_id: EntityId,
    body: AttachBody,  # type: ignore[valid-type]
    response: HttpResponse,
) -> Any:
    """Creates a version, unless the memory already has all these tags."""
    result = links.attach_tags(command=command_of(TagAttach, body, id=memory_id))
    response["ETag"] = entity_tag(result.version or 0)
    return result


@router.delete(
    "memories/{memory_id}/tags",
    response={200: TagsChanged, **problems(409, 410)},
    tags=["tags"],
    summary="Detach tags from a memory",
)
def detach_tags(
    request: HttpRequest,
    memory_id: EntityId,
    body: Query[DetachBody],  # type: ignore[valid-type]
    response: HttpResponse,
) -> Any:
    """Creates a version. Repeat the parameter ``tags`` for each tag."""
    result = links.detach_tags(command=command_of(TagDetach, body, id=memory_id))
    response["ETag"] = entity_tag(result.version or 0)
    return result


@router.get("relations", response={200: Listing, **problems(410)}, tags=["relations"], summary="List relations")
def show_relations(request: HttpRequest, command: Query[RelationList]) -> Any:
    """Newest first, of one item or all. Relations of deleted memories only with ``include_deleted``."""
    return list_relations(command=command)


@router.post(
    "relations",
    response={200: RelationResult, 201: RelationResult, **problems(409, 410)},
    tags=["relations"],
    summary="Create a relation",
)
def create_relation(request: HttpRequest, command: RelationCreate, response: HttpResponse) -> Any:
    """201 if the relation was created; 200 if it already exists."""
    result = links.create_relation(command=command)
    response["Location"] = f"{request.path}/{result.id}"
    return Status(201 if result.status is LinkStatus.CREATED else 200, result)


@router.delete(
    "relations/{relation_id}",
    response={200: RelationResult, **problems(409)},
    tags=["relations"],
    summary="Delete a relation",
)
def delete_relation(
    request: HttpRequest,
    relation_id: EntityId,
    body: Query[DeleteBody],  # type: ignore[valid-type]
) -> Any:
    """Returns the deleted relation."""
    return links.delete_relation(command=command_of(RelationDelete, body, id=relation_id))


VerdictBody = without(ReviewVerdict, "id")


@router.get("reviews", response=Listing, tags=["review"], summary="List memories that need a review")
def list_reviews(request: HttpRequest, command: Query[ReviewList]) -> Any:
    """Longest waiting first, each with its author, the reason for the review, and the change."""
    return selectors.list_reviews(command=command)


@router.post(
    "memories/{memory_id}/review",
    response={200: ReviewResult, **problems(403, 409, 410, 412)},
    tags=["review"],
    summary="Accept or reject a memory",
)
def review_memory(
    request: HttpRequest,
    memory_id: EntityId,
    body: VerdictBody,  # type: ignore[valid-type]
    response: HttpResponse,
) -> Any:
    """409 if it already has this state, 412 if it has a newer version than ``base_version``, 403 for its author."""
    result = services.review_memory(command=command_of(ReviewVerdict, body, id=memory_id))
    response["ETag"] = entity_tag(result.version)
    return result
