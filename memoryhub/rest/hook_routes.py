"""The door of clients' hooks: what they tell is captured in the project of the folder where it happened."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Body, Query, Router, Status
from pydantic import Field

from memoryhub.config.clients import Effect
from memoryhub.core import ids
from memoryhub.core.permissions import demand_hub
from memoryhub.core.rest import problems
from memoryhub.core.schemas import Command
from memoryhub.rest.framework import named_in
from sessions_app.events.work import Slug
from sessions_app.hook_parser import answer_for_client, parse_hook, project_of
from sessions_app.services.capture import note_window, take_event

router = Router()


class HookQuery(Command):
    """Where a hook's event belongs."""

    project: Slug | None = Field(None, description="default: the project of the folder that the event names")


@router.post(
    "hooks/{client}/{event}",
    response={200: dict[str, Any], 204: None, **problems(404)},
    tags=["hooks"],
    summary="Take what a client tells at a hook",
)
def take_hook(
    request: HttpRequest, client: str, event: str, place: Query[HookQuery], told: Body[dict[str, Any]]
) -> Any:
    """The body is the client's own; the answer is what the client expects on the hook's standard output, if anything.

    With the same ``Idempotency-Key`` again nothing is added.
    """
    demand_hub()
    heard = parse_hook(client=client, event=event, data=told)
    if heard.effect is Effect.NOTHING:
        return Status(204, None)
    key = named_in(request, "Idempotency-Key") or f"hook-{ids.short_id()}"
    project = project_of(heard, place.project)
    text = take_event(event=heard, client=client, project=project, idempotency_key=key)
    note_window(event=heard, window=request.headers.get("Memory-Hub-Window", ""))
    return answer_for_client(event, text) if text else Status(204, None)
