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
from memories.selectors import conflicts
from memoryhub.core.rest import command_of, problems, without
from memoryhub.core.schemas import EntityId, Listing

router = Router()

ConflictShow = without(ConflictGet, "id")
SettleBody = without(ConflictSettle, "id")


@router.post("query", response=Listing, tags=["search"], summary="Query by kinds, scope, tags, words and relations")
def ask(request: HttpRequest, command: MemoryQuery) -> Any:
    """Ranked, with evidence, score and parts of the score. For the next page, repeat the body with ``cursor``."""
    return query(command=command)


@router.get("conflicts", response=Listing, tags=["conflicts"], summary="List conflicts")
def list_conflicts(request: HttpRequest, command: Query[ConflictList]) -> Any:
    """Open conflicts or all, with both versions and their differences as ``[-removed-]`` and ``{+added+}``."""
    return conflicts.list_conflicts(command=command)


@router.get("conflicts/{conflict_id}", response=dict[str, Any], tags=["conflicts"], summary="Get a conflict")
def get_conflict(
    request: HttpRequest,
    conflict_id: EntityId,
    show: Query[ConflictShow],  # type: ignore[valid-type]
) -> Any:
    """Open or resolved, in the same form as in the list."""
    return conflicts.get_conflict(command=command_of(ConflictGet, show, id=conflict_id))


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
    """Keep a (the earlier version), keep b, merge, or keep both. Answers 409 if it is resolved already."""
    return services.resolve_conflict(command=command_of(ConflictSettle, body, id=conflict_id))


@router.get(
    "context",
    response={200: dict[str, Any], 304: None},
    tags=["search"],
    summary="Get a context pack within a token budget",
)
def get_context(
    request: HttpRequest,
    command: Query[ContextPackRequest],
    response: HttpResponse,
    if_none_match: Annotated[str | None, Header(None, alias="If-None-Match", description="the ETag you have")] = None,
) -> Any:
    """Byte for byte the previous pack while nothing has changed; 304 if ``If-None-Match`` has its ETag.

    A pack with new content is recorded as an event and can be replayed: ``context/{id}``.
    """
    if if_none_match and if_none_match.strip().strip('"') == pack_digest(command=command):
        return Status(304, None)
    sent = pack_context(command=command)
    response["ETag"] = f'"{sent.digest}"'
    return sent.data()


@router.get("context/{pack_id}", response=dict[str, Any], tags=["search"], summary="Replay a context pack")
def get_sent_context(request: HttpRequest, pack_id: EntityId) -> Any:
    """Composed from the stores as of when it was sent; ``meta.as_sent`` is false if something was erased since."""
    return replay_pack(command=ContextReplay(id=pack_id)).data()
