"""The REST routes of cross-reference queries and of conflicts."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Query, Router

from memories import services
from memories.query import query
from memories.schemas import ConflictResult
from memories.schemas.query import ConflictGet, ConflictList, ConflictSettle, MemoryQuery
from memories.selectors import disputes
from memoryhub.core.rest import command_of, problems, without
from memoryhub.core.schemas import EntityId, Listing

router = Router()

ConflictShow = without(ConflictGet, "id")
SettleBody = without(ConflictSettle, "id")


@router.post("query", response=Listing, tags=["search"], summary="Ask by kinds, scope, tags, words and relations")
def ask(request: HttpRequest, command: MemoryQuery) -> Any:
    """Ranked; each result with its evidence, its score and the parts of it. Page by ``cursor`` with the same body."""
    return query(command=command)


@router.get("conflicts", response=Listing, tags=["conflicts"], summary="List conflicts")
def list_conflicts(request: HttpRequest, command: Query[ConflictList]) -> Any:
    """Open ones, or all; both versions with who, when and why, and what differs as ``[-gone-]`` and ``{+come+}``."""
    return disputes.list_conflicts(command=command)


@router.get("conflicts/{conflict_id}", response=dict[str, Any], tags=["conflicts"], summary="Get a conflict")
def get_conflict(
    request: HttpRequest,
    conflict_id: EntityId,
    show: Query[ConflictShow],  # type: ignore[valid-type]
) -> Any:
    """As the list shows it; settled ones too."""
    return disputes.get_conflict(command=command_of(ConflictGet, show, id=conflict_id))


@router.post(
    "conflicts/{conflict_id}/resolve",
    response={200: ConflictResult, **problems(409, 410)},
    tags=["conflicts"],
    summary="Settle a conflict",
)
def resolve_conflict(
    request: HttpRequest,
    conflict_id: EntityId,
    body: SettleBody,  # type: ignore[valid-type]
) -> Any:
    """Keep a (the earlier version), keep b, merge them, or keep both. 409 where it is settled already."""
    return services.resolve_conflict(command=command_of(ConflictSettle, body, id=conflict_id))
