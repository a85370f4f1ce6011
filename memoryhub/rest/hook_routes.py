"""Routes for clients' hooks, which capture events in the project of the client's folder."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from django.http import HttpRequest
from ninja import Body, Query, Router, Status
from pydantic import Field

from memoryhub.config.clients import Effect
from memoryhub.config.folder import use_folder
from memoryhub.config.identity import bind_project
from memoryhub.core import ids
from memoryhub.core.contributions import opening_of
from memoryhub.core.origin import use_origin
from memoryhub.core.permissions import demand_hub
from memoryhub.core.rest import problems
from memoryhub.core.schemas import Command
from memoryhub.core.stores.store import project_store, use_store
from memoryhub.rest.framework import header_of
from sessions_app.events.work import Slug
from sessions_app.hook_parser import HookEvent, parse_hook, project_of
from sessions_app.services.capture import capture, folder_settings_of

logger = logging.getLogger(__name__)

router = Router()


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
    demand_hub()
    hook_event = parse_hook(client=client, event=event, data=data)
    if hook_event.effect is Effect.NOTHING:
        return Status(204, None)
    key = header_of(request, "Idempotency-Key") or f"hook-{ids.short_id()}"
    project = project_of(hook_event, place.project)
    folder, problem = folder_settings_of(project, hook_event)
    origin = use_origin(source="hook", actor=client)
    with use_store(project_store(project), create=True), use_folder(folder), origin:
        capture(event=hook_event, idempotency_key=key)
        _note_folder(project, hook_event)
        answer = opening_of(hook_event.session_id) if hook_event.answers else ""
    if problem and hook_event.answers:
        answer = f"Memory Hub ignores this folder's settings: {problem}\n\n{answer}".rstrip()
    if not answer:
        return Status(204, None)
    return {"hookSpecificOutput": {"hookEventName": event, "additionalContext": answer}}


def _note_folder(project: str, hook_event: HookEvent) -> None:
    # At a session's start, so that another folder of the same name gets its own project.
    if hook_event.answers and hook_event.directory:
        bind_project(project, Path(hook_event.directory))
