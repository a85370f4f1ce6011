"""The door of clients' hooks: what they tell is captured in the project of the folder where it happened."""

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
from memoryhub.rest.framework import named_in
from sessions_app.events.work import Slug
from sessions_app.hook_parser import HookEvent, parse_hook, project_of
from sessions_app.services.capture import capture, folder_settings_of

logger = logging.getLogger(__name__)

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
    folder, problem = folder_settings_of(project, heard)
    origin = use_origin(source="hook", actor=client)
    with use_store(project_store(project), create=True), use_folder(folder), origin:
        capture(event=heard, idempotency_key=key)
        _note_folder(project, heard)
        answer = opening_of(heard.session_id) if heard.answers else ""
    if problem and heard.answers:
        answer = f"Memory Hub leaves out what this folder says of its settings: {problem}\n\n{answer}".rstrip()
    if not answer:
        return Status(204, None)
    return {"hookSpecificOutput": {"hookEventName": event, "additionalContext": answer}}


def _note_folder(project: str, heard: HookEvent) -> None:
    """Note at a session's start that the folder is the project's, so that another of its name is told apart."""
    if heard.answers and heard.directory:
        bind_project(project, Path(heard.directory))
