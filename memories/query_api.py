"""REST routes of queries, conflicts, context packs and what they are worth."""

from __future__ import annotations

from typing import Annotated, Any

from django.http import HttpRequest, HttpResponse
from ninja import Header, Query, Router, Status

from memories import services
from memories.pack import pack_context, pack_digest, replay_pack
from memories.query import query
from memories.schemas import ConflictResult
from memories.schemas.query import (
    ConflictGet,
    ConflictList,
    ConflictSettle,
    ContextPackRequest,
    ContextReplay,
    MemoryQuery,
)
from memories.selectors import versions
from memories.worth.report import worth_report
from memories.worth.schemas import WorthReport, WorthRequest
from memoryhub.core.rest import command_of, problems, without
from memoryhub.core.schemas import EntityId, Listing

router = Router()

ConflictShow = without(ConflictGet, "id")
SettleBody = without(ConflictSettle, "id")


@router.post("query", response=Listing, tags=["search"], summary="Query by kinds, scope, tags, words and relations")
def ask(request: HttpRequest, command: MemoryQuery) -> Any:
    """Ranked; each result has its score and the parts of it. To page, send the same body with ``cursor``."""
    return query(command=command)


@router.get("conflicts", response=Listing, tags=["conflicts"], summary="List conflicts")
def list_conflicts(request: HttpRequest, command: Query[ConflictList]) -> Any:
    """Unresolved or all: both versions with author, time, reason and word diff (``[-removed-]``, ``{+added+}``)."""
    return versions.list_conflicts(command=command)


@router.get("conflicts/{conflict_id}", response=dict[str, Any], tags=["conflicts"], summary="Get a conflict")
def get_conflict(
    request: HttpRequest,
    conflict_id: EntityId,
    show: Query[ConflictShow],  # type: ignore[valid-type]
) -> Any:
    """As in the list; also if resolved."""
    return versions.get_conflict(command=command_of(ConflictGet, show, id=conflict_id))


@router.post(
    "conflicts/{conflict_id}/resolve",
    response={200: ConflictResult, **problems(409, 410)},
    tags=["conflicts"],
    summary="Resolve a conflict",
)
def resolve_conflict(
    request: HttpRequest,
    conflict_id: EntityId,
    body: SettleBody,  # type: ignore[valid-type]
) -> Any:
    """Keep a (the earlier version), keep b, merge them, or keep both. 409 if it is already resolved."""
    return services.resolve_conflict(command=command_of(ConflictSettle, body, id=conflict_id))


@router.get(
    "context",
    response={200: dict[str, Any], 304: None},
    tags=["search"],
    summary="Get a context pack within a budget of tokens",
)
def get_context(
    request: HttpRequest,
    command: Query[ContextPackRequest],
    response: HttpResponse,
    if_none_match: Annotated[str | None, Header(None, alias="If-None-Match", description="the ETag you have")] = None,
) -> Any:
    """The same bytes as long as nothing changes; 304 if they match ``If-None-Match``.

    Each new pack is an event and can be rebuilt with ``context/{id}``.
    """
    if if_none_match and if_none_match.strip().strip('"') == pack_digest(command=command):
        return Status(304, None)
    sent = pack_context(command=command)
    response["ETag"] = f'"{sent.digest}"'
    return sent.data()


@router.get(
    "context/{pack_id}", response=dict[str, Any], tags=["search"], summary="Rebuild a context pack as it was sent"
)
def get_sent_context(request: HttpRequest, pack_id: EntityId) -> Any:
    """From the stores as of that time. ``meta.erased`` is how many of its lines were erased since."""
    return replay_pack(command=ContextReplay(id=pack_id)).data()


@router.get("worth", response=WorthReport, tags=["projects"], summary="Get what the project's memory is worth")
def get_worth(request: HttpRequest, command: Query[WorthRequest]) -> Any:
    """Tokens of packs, what became of them, memories never used, and sessions with memory held out.

    ``period`` is ``7d``, ``30d``, ``90d`` or ``all``.
    """
    return worth_report(command=command)
