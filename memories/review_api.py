"""The REST routes of review: what waits for a person, and what she says of it."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router

from memories.review import selectors, services
from memories.review.schemas import ReviewList, ReviewResult, ReviewVerdict
from memoryhub.core.rest import command_of, entity_tag, problems, without
from memoryhub.core.schemas import EntityId, Listing

router = Router()

VerdictBody = without(ReviewVerdict, "id")


@router.get("reviews", response=Listing, tags=["review"], summary="List what waits for a person")
def list_reviews(request: HttpRequest, command: Query[ReviewList]) -> Any:
    """What has waited longest comes first, each with who proposed it, why it waits, and what it changes."""
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
    """409 where it is so already, 412 where it has changed since ``base_version``, 403 to who wrote it."""
    result = services.review_memory(command=command_of(ReviewVerdict, body, id=memory_id))
    response["ETag"] = entity_tag(result.version)
    return result
