"""Routes for clients' hooks: of this machine, in the project of the client's folder, and of others, in a named one."""

from __future__ import annotations

import os
from typing import Any

from django.http import HttpRequest
from ninja import Body, Query, Router, Status
from pydantic import Field

from memoryhub.config import enabled
from memoryhub.config.clients import Effect
from memoryhub.core import ids
from memoryhub.core.errors import NotFound
from memoryhub.core.permissions import demand_everywhere
from memoryhub.core.rest import problems
from memoryhub.core.schemas import Command
from memoryhub.core.stores.store import current_store
from memoryhub.ops.serving.drain import drain_before_reading
from memoryhub.rest.framework import header_of
from sessions_app.events.work import Slug
from sessions_app.hook_parser import HookEvent, answer_for_client, parse_hook, place_event
from sessions_app.schemas import HookContext, HookDelivery
from sessions_app.services.capture import note_window, take_event
from sessions_app.services.deliveries import take_delivery

router = Router()
deliveries = Router()


class HookQuery(Command):
    """The project of a hook event."""

    project: Slug | None = Field(None, description="default: the project of the event's folder")


@router.post(
    "hooks/{client}/{event}",
    response={200: dict[str, Any], 204: None, **problems(404)},
    tags=["hooks"],
    summary="Capture a client's hook event",
)
def take_hook(
    request: HttpRequest, client: str, event: str, place: Query[HookQuery], data: Body[dict[str, Any]]
) -> Any:
    """The body is the client's own format; the answer is what the client expects on the hook's standard output.

    A repeated ``Idempotency-Key`` adds nothing.
    """
    demand_everywhere()
    hook_event = parse_hook(client=client, event=event, data=data)
    if hook_event.effect is Effect.NOTHING:
        return Status(204, None)
    is_checked = "Memory-Hub-Enabled" in request.headers
    if not is_checked and _is_switched_off(hook_event):
        return Status(204, None)
    try:
        project, hook_event = place_event(hook_event, client=client, project=place.project)
    except NotFound:
        if hook_event.effect is Effect.START:  # one sentence for a session is enough
            raise
        return Status(204, None)
    if not is_checked and _is_switched_off(hook_event):
        return Status(204, None)
    key = header_of(request, "Idempotency-Key") or f"hook-{ids.short_id()}"
    drain_before_reading(project)
    text = take_event(event=hook_event, client=client, project=project, idempotency_key=key)
    note_window(event=hook_event, window=request.headers.get("Memory-Hub-Window", ""))
    return answer_for_client(client, event, text) if text else Status(204, None)


# The hook has checked the folder that it runs in, which may be another, such as the client's own.
def _is_switched_off(event: HookEvent) -> bool:
    folders = {event.directory, event.working_directory}
    return any(enabled.switched_off_in(os.path.realpath(folder)) for folder in folders if folder.startswith("/"))


@deliveries.post(
    "hooks/{client}/{event}",
    response={200: HookContext, **problems(404)},
    tags=["hooks"],
    summary="Capture a hook event of another machine",
)
def deliver_hook(request: HttpRequest, client: str, event: str, command: HookDelivery) -> Any:  # noqa: ARG001
    """For a team's hub: the actor is that of the token, and no folder of the hub's machine is read.

    A repeated ``Idempotency-Key`` adds nothing.
    """
    drain_before_reading(current_store().name)
    return take_delivery(client=client, event=event, command=command)
