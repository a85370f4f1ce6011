"""The REST routes of staleness: what should be looked at again, and saying that it holds."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Query, Router

from governance.staleness.schemas import Affirm, AffirmResult, StaleList
from governance.staleness.selectors import list_stale
from governance.staleness.services import affirm
from memoryhub.core.rest import command_of, problems, without
from memoryhub.core.schemas import EntityId, Listing

router = Router()

AffirmBody = without(Affirm, "id")


@router.get("stale", response=Listing, tags=["staleness"], summary="List what should be looked at again")
def list_due(request: HttpRequest, command: Query[StaleList]) -> Any:
    """What has waited longest first; ``diff=true`` adds what the commits changed in the governed files."""
    return list_stale(command=command)


@router.post(
    "stale/{entity_id}/affirm",
    response={200: AffirmResult, **problems(409, 410)},
    tags=["staleness"],
    summary="Say that a memory or a decision still holds",
)
def affirm_thing(
    request: HttpRequest,
    entity_id: EntityId,
    body: AffirmBody,  # type: ignore[valid-type]
) -> Any:
    """Due again by its age from now on, or by the next commit; 409 where it does not hold, 410 where it is deleted."""
    return affirm(command=command_of(Affirm, body, id=entity_id))
