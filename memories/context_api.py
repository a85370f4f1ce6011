"""The REST routes of context packs."""

from __future__ import annotations

from typing import Annotated, Any

from django.http import HttpRequest, HttpResponse
from ninja import Header, Query, Router, Status

from memories.pack import pack_context, pack_digest, replay_pack
from memories.schemas.pack import ContextPackRequest, ContextReplay
from memoryhub.core.schemas import EntityId

router = Router()


@router.get(
    "context",
    response={200: dict[str, Any], 304: None},
    tags=["search"],
    summary="What to know before going on, within a budget of tokens",
)
def get_context(
    request: HttpRequest,
    command: Query[ContextPackRequest],
    response: HttpResponse,
    if_none_match: Annotated[str | None, Header(None, alias="If-None-Match", description="the ETag you have")] = None,
) -> Any:
    """The same bytes as before while nothing changed; 304 where they are those of ``If-None-Match``.

    Each pack that says something new is an event, and can be made again: ``context/{id}``.
    """
    if if_none_match and if_none_match.strip().strip('"') == pack_digest(command=command):
        return Status(304, None)
    sent = pack_context(command=command)
    response["ETag"] = f'"{sent.digest}"'
    return sent.data()


@router.get("context/{pack_id}", response=dict[str, Any], tags=["search"], summary="Make a context pack again")
def get_sent_context(request: HttpRequest, pack_id: EntityId) -> Any:
    """From the stores as they stood; ``meta.as_sent`` is false where something of it was erased since."""
    return replay_pack(command=ContextReplay(id=pack_id)).data()
